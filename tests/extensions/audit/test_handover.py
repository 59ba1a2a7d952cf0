"""Events of other processes than the one that writes an audit log."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.support.audit_logs import events, lines, unbroken

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.audit import AuditLog
from mcp_toolset.errors import AuditError
from mcp_toolset.extensions.audit import extension as audit_trail
from mcp_toolset.extensions.audit.extension import hand_over
from mcp_toolset.extensions.audit.log_files import seal_of

KEY = "a key of an audit log"


def test_i9_a_command_writes_to_the_log_if_no_other_process_does(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    AuditLog(path).hand_over("login", server="up", outcome="logged in")
    assert events(path) == ["started", "login", "stopped"]
    login = lines(path)[1]
    assert (login["server"], login["outcome"]) == ("up", "logged in") and login["at"].endswith("Z")
    assert not (tmp_path / "audit.jsonl.handed").exists()


def test_i9_what_a_command_does_beside_the_writer_of_the_log_is_in_the_chain_once(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, key=KEY).opened() as writer:
        for number in range(3):
            AuditLog(path, key=KEY).hand_over("logout", number=number)
        assert (tmp_path / "audit.jsonl.handed").stat().st_mode & 0o777 == 0o600
        writer.take_over()
        writer.take_over()
    assert events(path) == ["started", "logout", "logout", "logout", "stopped"]
    assert [line["number"] for line in lines(path)[1:4]] == [0, 1, 2]
    assert unbroken(path, KEY)


@pytest.mark.parametrize("change", ["key", "fields", "torn", "other"])
def test_i9_an_event_that_was_changed_on_its_way_is_not_recorded(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
):
    path, handed = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.handed"
    with AuditLog(path, key=KEY).opened() as writer:
        AuditLog(path, key="another key of a log" if change == "key" else KEY).hand_over("login", server="up")
        text = handed.read_text()
        handed.write_text(
            {"fields": text.replace("up", "in"), "torn": text[:-9], "other": "[]\n"}.get(change, text)
        )
        AuditLog(path, key=KEY).hand_over("logout", server="up")
        writer.take_over()
    assert "login" not in events(path) and "it is not recorded" in caplog.text
    assert "logout" in events(path)


def test_i9_an_event_that_cannot_be_kept_is_said(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with AuditLog(path).opened():
        (tmp_path / "audit.jsonl.handed").mkdir()
        with pytest.raises(AuditError, match="the event 'login' cannot be recorded"):
            AuditLog(path).hand_over("login", server="up")


def test_u76_an_event_for_one_log_is_not_taken_by_another_of_the_same_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    with AuditLog(one, key=KEY).opened(), AuditLog(other, key=KEY).opened() as writer:
        AuditLog(one, key=KEY).hand_over("login", server="up")
        (tmp_path / "one.jsonl.handed").rename(tmp_path / "other.jsonl.handed")
        AuditLog(other, key=KEY).hand_over("logout", server="up")
        writer.take_over()
    assert events(other) == ["started", "logout", "stopped"] and "it is not recorded" in caplog.text


def test_u76_a_log_that_another_process_has_just_begun_is_waited_for(tmp_path: Path):
    path, handed = tmp_path / "audit.jsonl", threading.Event()

    def command() -> None:
        hand_over(path, seal_of(KEY), "login", {"server": "up"})
        handed.set()

    thread = threading.Thread(target=command, daemon=True)
    thread.start()
    with AuditLog(path, key=KEY).opened() as writer:
        assert handed.wait(30)
        writer.take_over()
    assert events(path) == ["started", "login", "stopped"]


@pytest.mark.parametrize("placed", ["link", "pipe"])
def test_u83_what_somebody_puts_in_place_of_the_file_is_not_followed_and_holds_nothing_up(
    tmp_path: Path, placed: str, caplog: pytest.LogCaptureFixture
):
    path, handed, other = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.handed", tmp_path / "important"
    other.write_text("keep me")
    os.mkfifo(handed) if placed == "pipe" else handed.symlink_to(other)
    ended = threading.Event()

    def command() -> None:
        with AuditLog(path, key=KEY).opened() as writer:
            writer.take_over()
            with pytest.raises(AuditError, match="the event 'login' cannot be recorded"):
                AuditLog(path, key=KEY).hand_over("login", server="up")
        ended.set()

    threading.Thread(target=command, daemon=True).start()
    assert ended.wait(30)
    assert other.read_text() == "keep me" and "its events cannot be taken over" in caplog.text
    assert os.path.lexists(handed) and events(path) == ["started", "stopped"]


@pytest.mark.anyio
async def test_i9_a_server_that_runs_takes_over_what_commands_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Log(AuditLog):
        heard = threading.Event()

        def record(self, event: str, /, **fields: Any) -> None:
            super().record(event, **fields)
            if event == "login":
                self.heard.set()

    monkeypatch.setattr(audit_trail, "TAKE_OVER", 0.01)
    path = tmp_path / "audit.jsonl"
    log, command = Log(path), AuditLog(path)
    async with ToolsetServer(Toolset(), audit=log):
        await anyio.to_thread.run_sync(lambda: command.hand_over("login", server="up"))
        assert await anyio.to_thread.run_sync(log.heard.wait, 30)
        monkeypatch.setattr(audit_trail, "TAKE_OVER", 1e6)
    assert events(path) == ["started", "login", "stopped"]
    with pytest.raises(ZeroDivisionError):
        async with ToolsetServer(Toolset(), audit=AuditLog(path)):
            raise ZeroDivisionError
