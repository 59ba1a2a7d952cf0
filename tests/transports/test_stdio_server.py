"""Standard input and output: lines in linear time, a size cap, and nothing on stdout but the protocol."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.piped import handshake

from mcp_toolset.transports.line_dispatcher import LineBuffer, Overlong

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "local_tool" / "app.py"
INITIALIZE = handshake(1)


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=40))
def test_lines_are_the_same_however_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    whole = list(LineBuffer(50).feed(data))
    lines, pieces = LineBuffer(50), []
    for cut in cuts:
        piece, data = data[:cut], data[cut:]
        pieces.extend(lines.feed(piece))
    pieces.extend(lines.feed(data))
    assert pieces == whole


@given(st.lists(st.binary(max_size=80).map(lambda line: line.replace(b"\n", b" ")), min_size=1))
def test_f33_a_line_over_the_limit_is_none_and_the_others_are_whole(lines: list[bytes]) -> None:
    found = list(LineBuffer(40).feed(b"".join(line + b"\n" for line in lines)))
    assert found == [line if len(line) <= 40 else line[:256] for line in lines]
    assert [isinstance(line, Overlong) for line in found] == [len(line) > 40 for line in lines]


def started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )


def answered(process: subprocess.Popen[bytes], request: Mapping[str, Any] = INITIALIZE) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_f44_u117_a_signal_ends_a_waiting_stdio_server_at_once_and_quietly(number: int) -> None:
    with started(sys.executable, str(APP)) as process:
        assert answered(process)["id"] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_u117_a_server_under_nohup_outlives_its_terminal() -> None:
    with started("nohup", sys.executable, str(APP)) as process:
        assert answered(process)["id"] == 1
        process.send_signal(signal.SIGHUP)
        assert answered(process)["id"] == 1
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_line_that_is_no_message_is_answered_or_passed_over_and_the_next_one_works() -> None:
    with started(sys.executable, str(APP)) as process:
        assert process.stdin is not None
        process.stdin.write(b"this is no JSON\n\n[1, 2]\n")
        assert answered(process)["id"] == 1
        process.communicate(timeout=60)


def test_what_a_server_has_loaded_is_kept_out_of_garbage_collections(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "import gc\n"
        "from mcp_toolset import serve, tool\n"
        "@tool\n"
        "def frozen() -> int:\n"
        '    """Count."""\n'
        "    return gc.get_freeze_count()\n"
        "serve(frozen)\n"
    )
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "frozen", "arguments": {}}}
    with started(sys.executable, str(app)) as process:
        assert answered(process)["id"] == 1
        answer = answered(process, call)
        process.communicate(timeout=60)
    assert answer["result"]["structuredContent"]["result"] > 10_000
