"""`AuditLog`: what is recorded, what is lost, and that recording never waits."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.support.audit_logs import events, lines
from tests.support.warm import Warm

from mcp_toolset import CallReport
from mcp_toolset.audit import AuditLog
from mcp_toolset.calls.observers import common_of
from mcp_toolset.errors import AuditError, DefinitionError

PATIENCE = 30


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that the thread of a log brings about."""
    pause = threading.Event()
    for _ in range(PAUSES):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


PAUSES = PATIENCE * 100


def test_i9_each_line_has_a_number_and_the_digest_of_the_line_before(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with AuditLog(path).opened(lambda: {"version": "1"}) as log:
        log.record("decision", tool="pay", who="alice", rule="deny *", empty="", nothing=None)
    raw = path.read_bytes().splitlines()
    assert events(path) == ["started", "decision", "stopped"]
    assert [line["seq"] for line in lines(path)] == [1, 2, 3]
    assert lines(path)[0]["prev"] == "0" * 64
    said = [one[: one.index(b',"digest":')] for one in raw]
    assert [line["digest"] for line in lines(path)] == [sha256(one).hexdigest() for one in said]
    assert [line["prev"] for line in lines(path)[1:]] == [line["digest"] for line in lines(path)[:-1]]
    decision = lines(path)[1]
    assert decision.keys() == {"seq", "prev", "event", "time", "tool", "who", "rule", "digest"}


def test_i9_a_log_goes_on_where_it_was_closed(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    for _ in range(3):
        with AuditLog(path).opened() as log:
            log.record("call", tool="x")
    assert [line["seq"] for line in lines(path)] == list(range(1, 10))
    assert events(path) == ["started", "call", "stopped"] * 3


def test_i9_two_writers_of_one_file_are_refused(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with (
        AuditLog(path).opened(),
        pytest.raises(AuditError, match="another process writes this audit log; give each process a file"),
    ):
        AuditLog(path).open()
    with AuditLog(path).opened():
        pass


def test_i9_a_file_that_cannot_be_opened_is_refused_when_the_log_opens(tmp_path: Path):
    foreign = tmp_path / "notes.txt"
    foreign.write_text("my notes\n")
    with pytest.raises(
        AuditError, match=r"a.jsonl: the audit log cannot be opened \(File exists\); give a file"
    ):
        AuditLog(foreign / "a.jsonl").open()
    with pytest.raises(AuditError, match="this is not an audit log"):
        AuditLog(foreign).open()
    assert foreign.read_text() == "my notes\n"


def test_i9_the_files_are_for_their_owner_alone(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with AuditLog(path).opened():
        pass
    assert {one.name: oct(one.stat().st_mode & 0o777) for one in tmp_path.iterdir()} == {
        "audit.jsonl": "0o600",
        "audit.jsonl.head": "0o600",
        "audit.jsonl.lock": "0o600",
    }


def test_i9_a_pipe_that_nobody_reads_delays_nothing_and_loses_what_it_cannot_keep(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    log = AuditLog(path, max_queued=50)
    log.open()
    for number in range(200):
        log.record("call", number=number)
    until(lambda: log.lost >= 90 and bool(log._failing))
    with open(path, "rb") as reader:
        until(lambda: not log._queue and not log._failing and not log._lost)
        log.close()
        found = [json.loads(line) for line in reader.read().splitlines()]
    assert [line["seq"] for line in found] == list(range(1, len(found) + 1))
    told = [line for line in found if line["event"] == "lost"]
    assert sum(line["count"] for line in told) == log.lost
    assert log.lost + sum(line["event"] == "call" for line in found) == 200
    assert "cannot be written" in caplog.text and "of the audit log were lost" in caplog.text


def test_i9_calls_that_find_no_room_are_counted_as_lost_whichever_way_they_take(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    log = AuditLog(path, max_queued=20)
    call = CallReport(
        *("pay", "pay", "", "result", "", True, (), "", "", None, None, "desk 1", None, 0.0, 0.1),
        *(None, "ab" * 16, "", "", ()),
    )
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        log.open()
        log(call)
        until(lambda: bool(log.texts.known))
        taken = [log.note_plain(common_of(call), "cd" * 16, "result", True, 0.1) for _ in range(200)]
        assert taken[0] and not all(taken), "what finds no room must go the other way"
        for _ in range(taken.count(False)):
            log(call)
        until(lambda: not log._queue and not log._lost)
        log.close()
        found = [json.loads(line) for line in reader.read().splitlines()]
    assert log.lost
    assert sum(line["count"] for line in found if line["event"] == "lost") == log.lost
    assert log.lost + sum(line["event"] == "call" for line in found) == 201


def test_i9_a_disk_that_takes_no_more_delays_nothing(tmp_path: Path, warm: Warm):
    program = """
import resource, signal, sys
from mcp_toolset.audit import AuditLog
log = AuditLog(sys.argv[1], max_queued=10)
log.open()
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
for number in range(100):
    log.record("call", number=number)
log.close(timeout=0.2)
assert log.lost >= 50
"""
    command = warm.command("-c", program, str(tmp_path / "full.jsonl"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stderr and "lines unwritten" in done.stderr


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.jsonl.head"])
def test_u83_a_link_in_place_of_a_file_is_refused_and_its_target_left_alone(tmp_path: Path, name: str):
    path, other = tmp_path / "audit.jsonl", tmp_path / "important"
    other.write_text("keep me")
    (tmp_path / name).symlink_to(other)
    with pytest.raises(
        AuditError, match=f"{name}: this is a symbolic link; give the path of the file itself"
    ):
        AuditLog(path).open()
    assert other.read_text() == "keep me"


def test_i9_what_cannot_be_written_as_json_is_said_and_breaks_nothing(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    endless: dict[str, Any] = {}
    endless["again"] = endless

    class Secretive:
        def __repr__(self) -> str:
            raise AssertionError("nobody asks")

    with AuditLog(path).opened() as log:
        log.record(
            "odd", thing=Secretive(), number=float("nan"), deep=endless, text="\ud800\n\x1b[31m", seq=7
        )
        log.record("long", text="x" * 5_000, many=["y" * 400] * 400)
    odd, long = lines(path)[1:3]
    assert odd["thing"] == "Secretive" and odd["number"] == "nan" and odd["seq"] == 2
    assert b"\x1b" not in path.read_bytes() and len(path.read_bytes().splitlines()) == 4
    assert len(long["text"]) == 301 and len(long["many"]) == 50


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("sent Authorization: Bearer abc.def-1", "sent Authorization: Bearer ***"),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln is bad", "token *** is bad"),
        ("key ghp_abcdefghijklmnopqrst", "key ***"),
        ("a plain reason", "a plain reason"),
    ],
)
def test_i9_what_looks_like_a_credential_is_blanked(tmp_path: Path, said: str, shown: str):
    path = tmp_path / "audit.jsonl"
    with AuditLog(path).opened() as log:
        log.record("refused", reason=said)
    assert lines(path)[1]["reason"] == shown


def test_i9_a_log_has_one_key_for_its_life(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, key="a key of some length").opened():
        pass
    with pytest.raises(AuditError, match="was begun differently: it has a key"):
        AuditLog(path).open()
    with pytest.raises(AuditError, match="its head was changed, or the key is another one"):
        AuditLog(path, key="another key, as long").open()
    with AuditLog(path, key=b"a key of some length").opened():
        pass
    assert len(lines(path)) == 4


@pytest.mark.parametrize(
    "wrong", [{"max_bytes": 0}, {"max_files": 0}, {"max_queued": -1}, {"key": "short"}, {"fsync": -1}]
)
def test_i9_options_are_checked(tmp_path: Path, wrong: dict[str, Any]):
    with pytest.raises(DefinitionError):
        AuditLog(tmp_path / "audit.jsonl", **wrong)


def test_i9_digests_of_arguments_depend_on_the_log_and_not_on_the_order_of_keys(tmp_path: Path):
    found: list[str] = []
    for name in ("one", "two"):
        with AuditLog(tmp_path / name).opened() as log:
            assert log.digest({"a": 1, "b": [2]}) == log.digest({"b": [2], "a": 1})
            assert len({log.digest({"a": 1}), log.digest({"a": 2}), log.digest({"a": "1"}), ""}) == 4
            for value in (1, "é", "\ud800", None, 1.5, {"b": 1, "a": [2]}):
                digest = log.digest({"x": value, "a": True})
                assert digest == log.digest({"a": True, "x": value}) != log.digest({"x": value})
            found.append(log.digest({"a": 1}))
    with AuditLog(tmp_path / "one").opened() as log:
        assert log.digest({"a": 1}) == found[0] != found[1]


def test_i9_files_have_their_size_again_after_one_could_not_be_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path, size = tmp_path / "audit.jsonl", 4_000
    taken = tmp_path / "audit.jsonl.000000000001"

    def record(most: int, done: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(most):
            log.record("decision", tool="pay")
            pause.wait(0.001)
            if done():
                return

    with AuditLog(path, max_bytes=size, max_files=100, fsync=None).opened() as log:
        taken.mkdir()
        record(PAUSES, lambda: "cannot be rotated" in caplog.text)
        taken.rmdir()
        record(PAUSES, lambda: len(list(tmp_path.glob("audit.jsonl.0*"))) > 3)
    later = sorted(tmp_path.glob("audit.jsonl.0*"))[1:]
    assert len(later) > 2 and all(one.stat().st_size < 1.5 * size for one in later)
