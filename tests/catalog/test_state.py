"""`RegistryState` as JSON and in its file: what a later version wrote, damage, and who writes last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.catalog.registry.state import RegistryEntry, RegistryState
from mcp_toolset.catalog.registry.state_store import StateFile
from mcp_toolset.errors import InvalidStateError, StaleStateError, UnknownToolError

STATE = RegistryState(
    7, (RegistryEntry("", "app:add", "add"), RegistryEntry("git", "log", "git_log", "log", False))
)

names = st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z")
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
entries = st.builds(
    RegistryEntry, texts, texts, names, st.just("") | texts, st.sampled_from([True, False, None])
)
states = st.builds(
    RegistryState,
    st.integers(0, 10**9),
    st.lists(entries, max_size=6, unique_by=(lambda one: one.key, lambda one: one.name)).map(tuple),
)


@given(states)
def test_h11_a_state_survives_json(state: RegistryState) -> None:
    assert RegistryState.from_json(state.to_json()) == state


def test_h11_what_a_later_version_adds_is_passed_over() -> None:
    data = json.loads(STATE.to_json())
    data["color"] = "red"
    data["tools"][0]["shape"] = {"round": True}
    assert RegistryState.from_json(json.dumps(data)) == STATE


def test_h11_the_first_version_is_still_read() -> None:
    text = """{"format": "mcp-toolset/state", "version": 1, "generation": 3,
        "tools": [{"source": "git", "id": "log", "name": "git_log", "member": false},
                  {"source": "", "id": "app:add", "name": "add"}]}"""
    git = RegistryEntry("git", "log", "git_log", "git_log", False)
    assert RegistryState.from_json(text) == RegistryState(
        3, (git, RegistryEntry("", "app:add", "add", "add"))
    )


def test_h10_members_are_chosen_by_public_name() -> None:
    chosen = STATE.choosing({"add": False, "git_log": None})
    assert [entry.member for entry in chosen.tools] == [False, None] and chosen.generation == 7
    with pytest.raises(UnknownToolError, match="nope"):
        STATE.choosing({"nope": True})


def with_data(**changes: Any) -> str:
    return json.dumps({**json.loads(STATE.to_json()), **changes})


UNUSABLE = {
    "empty": (b"", "no JSON"),
    "cut": (STATE.to_json().encode()[:-30], "no JSON"),
    "binary": (b"\xff\xfe\x00\x01", "no JSON"),
    "deep": (b"[" * 100_000, "no JSON"),
    "a list": (b"[]", "not a saved state"),
    "an mcp.json": (b'{"mcpServers": {}}', "not a saved state"),
    "no version": (with_data(version=None).encode(), '"version" is no positive number'),
    "a later version": (with_data(version=99).encode(), "a later version (state 99, this one reads 1)"),
    "a generation of text": (with_data(generation="7").encode(), "generation: "),
    "a negative generation": (with_data(generation=-7).encode(), "generation: "),
    "no tools": (with_data(tools=None).encode(), "tools: "),
    "a tool without id": (with_data(tools=[{"source": "git"}]).encode(), "tools.0.id"),
    "a bad name": (with_data(tools=[{"source": "", "id": "x", "name": "a b"}]).encode(), "tools.0.name"),
    "one id twice": (with_data(tools=[{"source": "", "id": "x"}] * 2).encode(), "twice"),
}


@pytest.mark.parametrize(("content", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_f37_a_file_that_is_no_state_is_named_and_left_as_it_is(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    file = StateFile(path)
    for use in (file.load, lambda: file.save(STATE)):
        with pytest.raises(InvalidStateError) as caught:
            use()
        assert str(path) in str(caught.value) and reason in str(caught.value)
    assert path.read_bytes() == content


def test_f37_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidStateError, match=f"{tmp_path}: the state cannot be read: Is a directory"):
        StateFile(tmp_path).load()
    with pytest.raises(InvalidStateError, match="cannot be written: No such file.*choose a folder"):
        StateFile(tmp_path / "absent" / "state.json").save(STATE)


def test_f37_a_state_is_saved_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    file = StateFile(path)
    assert file.load() is None
    file.save(STATE)
    file.save(RegistryState(8, STATE.tools))
    assert StateFile(path).load() == RegistryState(8, STATE.tools)
    assert sorted(os.listdir(tmp_path)) == ["state.json", "state.json.lock"]
    assert path.stat().st_mode & 0o077 == 0


def test_f37_a_save_that_fails_leaves_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    file = StateFile(path)
    file.save(STATE)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidStateError, match="No space left"):
        file.save(RegistryState(8))
    assert StateFile(path).load() == STATE
    assert sorted(os.listdir(tmp_path)) == ["state.json", "state.json.lock"]


def test_f37_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state.json")
    StateFile(tmp_path / "link").save(STATE)
    assert (tmp_path / "link").is_symlink() and StateFile(tmp_path / "state.json").load() == STATE


def test_h10_who_has_not_seen_the_last_save_is_refused(tmp_path: Path) -> None:
    one, other = StateFile(tmp_path / "s"), StateFile(tmp_path / "s")
    one.load()
    other.load()
    one.save(STATE)
    with pytest.raises(StaleStateError, match="saved generation 7 here, after none"):
        other.save(RegistryState(7))
    assert other.load() == STATE
    other.save(RegistryState(8))
    with pytest.raises(StaleStateError):
        one.save(RegistryState(9))
    # What is there already is no conflict: two servers of one configuration save alike.
    one.save(RegistryState(8))
    one.save(RegistryState(9))


def test_h10_of_threads_that_save_at_once_one_wins(tmp_path: Path) -> None:
    path, start = tmp_path / "s", threading.Barrier(6)
    StateFile(path).save(STATE)
    won: list[int] = []

    def write(number: int) -> None:
        file = StateFile(path)
        file.load()
        start.wait(5)
        try:
            file.save(RegistryState(8, (RegistryEntry("", f"t{number}", f"t{number}"),)))
            won.append(number)
        except StaleStateError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    saved = StateFile(path).load()
    assert saved is not None
    assert [entry.id for entry in saved.tools] == [f"t{number}" for number in won] and len(won) == 1


WRITER = """
import sys
from mcp_toolset.catalog.registry.state import RegistryEntry, RegistryState
from mcp_toolset.catalog.registry.state_store import StateFile
from mcp_toolset.errors import StaleStateError
path, me = sys.argv[1:]
file = StateFile(path)
won = 0
file.load()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(25):
    while True:
        seen = file.load()
        tools = {entry.id: entry for entry in seen.tools}
        count = int(tools[me].name[1:]) + 1 if me in tools else 1
        tools[me] = RegistryEntry("", me, f"{me}{count}")
        try:
            file.save(RegistryState(seen.generation + 1, tuple(tools.values())))
            break
        except StaleStateError:
            continue
"""


def test_h10_processes_that_share_a_file_lose_no_save(tmp_path: Path) -> None:
    path = tmp_path / "s"
    StateFile(path).save(RegistryState(0))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), me], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for me in "ab"
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        for writer in writers:
            writer.communicate(b"go\n", timeout=60)
        assert [writer.returncode for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(10)
    saved = StateFile(path).load()
    assert saved is not None and saved.generation == 50
    assert {entry.name for entry in saved.tools} == {"a25", "b25"}
