"""Grants in a file: what may be opened, what is refused and left alone, several processes at once (F37)."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.catalog.test_grants import CALLERS, binding
from tests.support.calling import Caller
from tests.support.warm import Warm

from mcp_toolset.catalog.grants.store import ToolGrant
from mcp_toolset.errors import GrantStoreError
from mcp_toolset.grants import GrantLedger
from mcp_toolset.shared import Put
from mcp_toolset.stores import sqlite
from mcp_toolset.stores.sqlite import FILE


def filled(path: Path, count: int = 1) -> list[ToolGrant]:
    with GrantLedger(path) as ledger:
        return [ledger.issue(binding("read"), CALLERS[1]) for _ in range(count)]


def test_f37_grants_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "grants.db"
    (grant,) = filled(path)
    with GrantLedger(path) as ledger:
        assert ledger.find(grant.grant, CALLERS[1]) == grant
        ledger.check(grant, binding("read"))
        assert [record.grant for record in ledger.records()] == [grant]


def test_f37_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "grants.db"
    with GrantLedger(path) as ledger:
        ledger.issue(binding("read"), CALLERS[0])
        modes = {file.name: stat.S_IMODE(os.stat(file).st_mode) for file in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_x1_a_stolen_file_holds_no_handle_that_proves_anything(tmp_path: Path) -> None:
    path = tmp_path / "grants.db"
    with GrantLedger(path) as ledger:
        grant = ledger.issue(binding("read"), CALLERS[0])
    secret = grant.grant.partition(".")[2].encode()
    assert not any(secret in file.read_bytes() for file in tmp_path.iterdir())


def text(path: Path) -> None:
    path.write_text("these are somebody's notes, not a database\n" * 40)


def short(path: Path) -> None:
    path.write_bytes(b"\x00")


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE songs (title TEXT)")


def marked_by_another(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA application_id = 7")
        file.execute("PRAGMA user_version = 1")


def later_version(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {len(FILE.steps) + 1}")


def cut(path: Path) -> None:
    filled(path, 200)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribbled(path: Path) -> None:
    filled(path, 200)
    content = bytearray(path.read_bytes())
    content[4096 : len(content) - 4096] = b"\x5a" * (len(content) - 8192)
    path.write_bytes(content)


SPOILT: list[tuple[Callable[[Path], None], str]] = [
    (text, "not a database"),
    (short, "not a database"),
    (other_program, "another program"),
    (marked_by_another, "another program"),
    (later_version, "version 2"),
    (cut, "damaged|malformed"),
    (scribbled, "damaged|malformed"),
]


@pytest.mark.parametrize(("spoil", "says"), SPOILT, ids=lambda value: getattr(value, "__name__", ""))
def test_f37_a_file_that_cannot_be_used_is_named_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    path = tmp_path / "grants.db"
    spoil(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(GrantStoreError, match=says) as told:
            GrantLedger(path)
        assert str(path) in str(told.value) and "move it away" in str(told.value)
        assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["", "missing/grants.db"])
def test_f37_a_place_where_no_file_can_be_is_named(tmp_path: Path, place: str) -> None:
    with pytest.raises(GrantStoreError, match="cannot be used for grants") as told:
        GrantLedger(tmp_path / place)
    assert str(tmp_path / place) in str(told.value)


def test_f37_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "grants.db"
    path.touch()
    assert filled(path)


def test_f37_what_fails_later_grants_nothing_and_names_no_file(tmp_path: Path) -> None:
    path = tmp_path / "grants.db"
    ledger = GrantLedger(path)
    grant = ledger.issue(binding("read"), CALLERS[1])
    ledger.close()
    uses: list[Callable[[], object]] = [
        lambda: ledger.issue(binding("read"), CALLERS[1]),
        lambda: ledger.find(grant.grant, CALLERS[1]),
        lambda: ledger.held(CALLERS[1]),
        lambda: ledger.revoke_all(),
        lambda: ledger.records(),
    ]
    for use in uses:
        with pytest.raises(GrantStoreError) as told:
            use()
        assert str(tmp_path) not in str(told.value)


def test_f37_a_batch_is_kept_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GrantLedger(tmp_path / "grants.db") as ledger:
        real, done = sqlite.changing, []

        def fails_at_the_second(put: Put, now: float) -> object:
            done.append(put)
            if len(done) == 2:
                raise sqlite3.OperationalError("disk full")
            return real(put, now)

        monkeypatch.setattr(sqlite, "changing", fails_at_the_second)
        with pytest.raises(GrantStoreError):
            ledger.resolved([("read", binding("read")), ("wipe", binding("wipe"))], CALLERS[1])
        assert ledger.records() == [] and ledger.held(CALLERS[1]) == []
        monkeypatch.undo()
        assert ledger.issue(binding("read"), CALLERS[1])


def test_f37_a_locked_file_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WRITE_TIMEOUT", 0.05)
    path = tmp_path / "grants.db"
    with GrantLedger(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        grant = ledger.issue(binding("read"), CALLERS[1])
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(GrantStoreError, match="try again later"):
            ledger.issue(binding("read"), CALLERS[1])
        assert ledger.find(grant.grant, CALLERS[1]) == grant, "readers wait for no writer"
        other.execute("ROLLBACK")
        assert ledger.issue(binding("read"), CALLERS[1])


def test_x1_two_programs_see_each_others_grants_and_revocations(tmp_path: Path) -> None:
    path = tmp_path / "grants.db"
    with GrantLedger(path) as here, GrantLedger(path) as there:
        grant = here.issue(binding("read"), CALLERS[3])
        assert there.find(grant.grant, CALLERS[3]) == grant
        assert there.revoke(principal="one") == 1
        found = here.find(grant.grant, CALLERS[3])
        assert found is not None and found.revoked


def test_x1_threads_never_share_a_use(tmp_path: Path) -> None:
    with GrantLedger(tmp_path / "grants.db", bearer_uses=20) as ledger:
        grant = ledger.issue(binding("read"), Caller())
        had: list[bool] = []
        threads = [
            threading.Thread(target=lambda: had.extend(ledger.use(grant) for _ in range(10)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert (len(had), sum(had)) == (80, 20)


PROCESS = """
import json, sys
from tests.catalog.test_grants import binding
from tests.support.calling import Caller
from mcp_toolset.grants import GrantLedger

path, me, shared = sys.argv[1:]
with GrantLedger(path) as ledger:
    caller, everyone = Caller(principal=me), Caller(principal="everyone")
    mine = []
    for n in range(25):
        grant = ledger.issue(binding(f"t{n}"), caller)
        assert ledger.find(grant.grant, caller) == grant
        mine.append(grant.grant)
        if n % 5 == 0:
            assert ledger.revoke(grant=mine[-1]) == 1
    (record,) = ledger.resolved([("read", binding("read"))], everyone, "one turn")
    grant = ledger.find(shared, Caller())
    used = sum(ledger.use(grant) for _ in range(10))
    print(json.dumps([mine, record.grant.grant, used]))
"""


@pytest.mark.long
def test_x1_processes_on_one_file(tmp_path: Path, warm: Warm) -> None:
    """Six at once make the file, grant, take back, race for one replay key and for the uses of one grant."""
    path = tmp_path / "grants.db"
    root = Path(__file__).parents[2]
    with GrantLedger(path, bearer_uses=33) as ledger:
        shared = ledger.issue(binding("read"), Caller())
    running = [
        subprocess.Popen(
            warm.command("-c", PROCESS, str(path), f"p{n}", shared.grant),
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(6)
    ]
    told = [process.communicate(timeout=90) for process in running]
    assert [process.returncode for process in running] == [0] * 6, [err[-1500:] for _, err in told]
    answers = [json.loads(out) for out, _ in told]
    assert len({handle for _, handle, _ in answers}) == 1, "one replay key has one outcome"
    assert sum(used for _, _, used in answers) == 33
    with GrantLedger(path) as ledger:
        for n, (mine, _, _) in enumerate(answers):
            states = [ledger.find(handle, Caller(principal=f"p{n}")) for handle in mine]
            assert [grant is not None and grant.revoked for grant in states] == [
                place % 5 == 0 for place in range(25)
            ]
            assert ledger.find(mine[1], Caller(principal=f"p{n + 1}")) is None
