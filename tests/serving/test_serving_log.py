"""The log that a process keeps while it serves: what is in it, who reads it, and what it may cost."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.serving import serving_log as log_file
from mcp_toolset.serving.log_reading import LogReader
from mcp_toolset.serving.serving_log import LogChoice, LogFile, logged
from mcp_toolset.transports import stdio_client as stderr
from mcp_toolset.transports.stdio_client import KEPT_LINES, LOGGED, StderrTail

LOGGERS = ("mcp_toolset", "mcp_toolset.stderr", "mcp_toolset.hooks", "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCP_TOOLSET_LOG", str(tmp_path / "log"))
    monkeypatch.delenv("MCP_TOOLSET_LOG_LEVEL", raising=False)
    return tmp_path / "log"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Loggers are left as they were."""
    found = [(name, *_state(name)) for name in LOGGERS]
    yield
    assert [(name, *_state(name)) for name in LOGGERS] == found


def _state(name: str) -> tuple[int, bool, list[logging.Handler]]:
    logger = logging.getLogger(name)
    return (
        logger.level,
        logger.propagate,
        [one for one in logger.handlers if type(one).__module__[:3] == "mcp"],
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [dict(line.fields) for line in LogReader(folder).news()]


def messages(folder: Path) -> list[str]:
    return [line["message"] for line in lines(folder)]


def test_e2_lines_are_private_json_with_time_level_logger_server_and_client(folder: Path) -> None:
    with logged(LogChoice(), "/home/me/mcp.json") as log:
        log.follow(ToolsetServer(Toolset(_tool())), one_client=True)
        logging.getLogger("mcp_toolset.server").info("hello", extra={"client": "Claude 1"})
        logging.getLogger("mcp_toolset.upstream.git").info("ready", extra={"trace": "abc", "span": "def"})
        logging.getLogger("of.a.program").warning("the disk is old")
    first, hello, ready, other, ended = lines(folder)
    assert first["served"] == "/home/me/mcp.json" and first["pid"] == os.getpid()
    assert (hello["client"], ready["client"]) == ("Claude 1", "Claude 1"), "stdio has one client"
    assert {"time", "level", "message", "logger", "pid"} <= ready.keys() and ready["time"].endswith("Z")
    assert (ready["server"], ready["trace"], ready["span"]) == ("git", "abc", "def")
    assert (other["level"], other["logger"]) == ("warning", "of.a.program")
    assert ended["message"] == "ended"
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_e2_other_handlers_are_told_no_more_than_without_a_log(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("mcp_toolset.upstream.git")
    with logged(LogChoice(level="debug"), "x"):
        log.info("for the log")
        log.warning("for both")
        with caplog.at_level(logging.DEBUG, "mcp_toolset.upstream.git"):
            log.debug("asked for")
    assert [record.getMessage() for record in caplog.records] == ["for both", "asked for"]
    assert {"for the log", "for both", "asked for"} <= {*messages(folder)}


def test_e2_without_handlers_python_still_shows_warnings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with logged(LogChoice(), "x"):
        logging.getLogger("mcp_toolset.hub").warning("of ours")
        logging.getLogger("of.a.program").warning("of a program")
        logging.getLogger("mcp_toolset.hub").info("not shown")
    assert capsys.readouterr().err == "of ours\nof a program\n"


def test_e2_an_error_that_ends_the_process_is_in_the_log_and_a_traceback_too(folder: Path) -> None:
    with pytest.raises(OSError), logged(LogChoice(), "x"):
        try:
            raise ValueError("Bearer abcdefghijklmnopqrstuvwxyz")
        except ValueError:
            logging.getLogger("mcp_toolset.calls").exception("tool pay raised")
        raise OSError("the port is taken")
    _, raised, ended = lines(folder)
    assert raised["error"] == "ValueError: Bearer ***" and "test_serving_log" in raised["traceback"]
    assert "abcdefghijklmnopqrstuvwxyz" not in str(lines(folder)), "what looks like a credential is blanked"
    assert (ended["level"], ended["message"], ended["error"]) == (
        "error",
        "ended: the port is taken",
        "OSError",
    )


def test_e2_a_record_whose_text_cannot_be_made_harms_nothing(folder: Path) -> None:
    class Strange:
        def __str__(self) -> str:
            raise RuntimeError("no")

    with logged(LogChoice(), "x") as log:
        log.open()
        logging.getLogger("mcp_toolset.hub").info("%s", Strange())
    assert "a record of mcp_toolset.hub has no text: RuntimeError" in messages(folder)


@pytest.mark.parametrize(
    ("choice", "said", "configured", "place", "level"),
    [
        (LogChoice(), "", None, None, 20),
        (LogChoice(), "", {"level": "error"}, "log", 40),
        (LogChoice(), "", {"folder": "/x", "level": "debug"}, "/x", 10),
        (LogChoice(), "/y", None, "/y", 20),
        (LogChoice(), "off", {"folder": "/x"}, None, 20),
        (LogChoice(False), "/y", {}, None, 20),
        (LogChoice(Path("/z"), "warning"), "off", {"level": "debug"}, "/z", 30),
    ],
)
def test_e2_the_option_goes_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
    choice: LogChoice,
    said: str,
    configured: dict[str, Any] | None,
    place: str | None,
    level: int,
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_LOG", said)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    folder = choice.folder(configured)
    assert choice.number(configured) == level
    assert (folder is None) if place is None else str(folder).endswith(place)
    monkeypatch.setenv("MCP_TOOLSET_CHAIN", "[]")
    if choice.place is None:
        assert choice.folder(configured) is None, "the bridge above keeps what this process writes to stderr"


def test_e2_a_level_that_is_none_is_told_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_LOG_LEVEL", "loud")
    with logged(LogChoice(), "x"):
        pass
    assert "is 'loud', which is no level" in caplog.text
    monkeypatch.setenv("MCP_TOOLSET_LOG_LEVEL", "error")
    with logged(LogChoice(), "y"):
        logging.getLogger("mcp_toolset.hub").warning("not kept")
    assert "not kept" not in messages(folder)


def test_e2_the_log_is_off_without_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with logged(LogChoice(False), "x") as log:
        log.open()
        logging.getLogger("mcp_toolset.hub").info("nowhere")
    assert not folder.exists()


def test_e2_full_files_are_followed_by_others_and_old_ones_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "PART", 200)
    file, reader, read = LogFile(folder, lambda: b'{"served": "x"}\n'), LogReader(folder), list[int]()
    for number in range(200):
        file.write(b'{"time": "%05d", "n": %d}\n' % (number, number))
        read += [line.fields["n"] for line in reader.news() if "n" in line.fields]
    assert read == [*range(200)], "a follower misses nothing"
    found = sorted(folder.iterdir())
    assert len(found) == log_file.PARTS and all(one.stat().st_size <= 220 for one in found)
    assert all(one.read_bytes().startswith(b'{"served": "x"}') for one in found)
    for one in found:
        one.unlink()
    file.write(b'{"n": 1}\n')
    assert [*folder.iterdir()], "a log whose files were removed goes on"
    os.utime(next(folder.iterdir()), (1, 1))
    LogFile(folder, lambda: b"").write(b"{}\n")
    assert len([*folder.iterdir()]) == 1, "files of other processes go by their age"


def test_e2_a_disk_that_is_full_stops_nothing_and_lost_lines_are_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: int, data: bytes) -> int:
        return write(file, data[:10])

    write, log = os.write, logging.getLogger("mcp_toolset.hub")
    with logged(LogChoice(), "x") as kept:
        kept.open()
        log.info("one")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            log.info("two")
            log.info("three")
        log.info("four")
    assert messages(folder)[1:-1] == ["one", "2 lines of this log were lost", "four"]
    (told,) = caplog.records
    assert "cannot be written (the disk is full); serving goes on; mend that" in told.getMessage()


@pytest.mark.anyio
async def test_e2_a_flood_on_stderr_is_cut_and_its_end_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stderr, "monotonic", lambda: 0.0)
    with logged(LogChoice(), "x") as log:
        log.open()
        tail = StderrTail("git")
        async with tail.opened() as child:
            with anyio.fail_after(30):
                await anyio.to_thread.run_sync(_flood, child.fileno())
    told = [line for line in lines(folder) if line.get("server") == "git"]
    # Beside the lines, there is a note wherever some were left out.
    assert len(told) <= LOGGED + 2 * KEPT_LINES
    assert told[-1]["message"] == "    at the end", "unfinished, and indented"
    assert any("lines left out" in line["message"] for line in told)
    assert {line["level"] for line in told} == {"info"} and KEPT_LINES < len(told)


def _flood(file: int) -> None:
    for number in range(20_000):
        os.write(file, b"line %d\n" % number)
    os.write(file, b"    at the end")


def _tool() -> Any:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return add


def test_e2_lines_of_one_process_keep_their_order_when_its_clock_goes_back(folder: Path) -> None:
    folder.mkdir(parents=True)
    for process, times in ((1, "3 1 4"), (2, "2 5")):
        written = "".join(f'{{"time": "{at}", "message": "{process}-{at}"}}\n' for at in times.split())
        (folder / f"20261122T000000-{process}.0000.jsonl").write_text(written)
    assert messages(folder) == ["2-2", "1-3", "1-1", "1-4", "2-5"]
