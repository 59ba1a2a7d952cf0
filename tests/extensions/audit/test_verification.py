"""`verify`: any change, cut, swap or insertion is found, and the line is named."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.audit import AuditLog
from mcp_toolset.errors import AuditError
from mcp_toolset.extensions.audit.log_files import Chain, LogHead, ReadHead, Seal, files_of, seal_of
from mcp_toolset.extensions.audit.verification import LogFault, VerifiedLog, verify

KEY = "a key that nobody guesses"


def check(path: Path, key: str | None = None) -> VerifiedLog:
    return verify([path], seal_of(key))[0]


def found(path: Path, key: str | None = None) -> LogFault:
    finding = check(path, key).finding
    assert finding is not None
    return finding


@contextmanager
def a_log(events: int, max_bytes: int, max_files: int = 100, key: str | None = None) -> Generator[Path]:
    """A log of some lines in several files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        with AuditLog(path, max_bytes=max_bytes, max_files=max_files, key=key, fsync=None).opened() as log:
            for number in range(events):
                log.record("call", tool=f"tool_{number % 3}", number=number)
        yield path


def read(path: Path) -> list[tuple[Path, list[bytes]]]:
    return [(file, file.read_bytes().splitlines(keepends=True)) for file in files_of(path)]


def places(path: Path) -> list[tuple[Path, int]]:
    """Every line by its file and its index in it."""
    return [(file, at) for file, lines in read(path) for at in range(len(lines))]


def edit(file: Path, change: Callable[[list[bytes]], None]) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    change(lines)
    file.write_bytes(b"".join(lines))


LOGS = {
    "events": st.integers(1, 25),
    "max_bytes": st.integers(200, 3_000),
    "key": st.sampled_from([None, KEY]),
}


@given(**LOGS, max_files=st.integers(1, 30))
def test_i9_a_log_of_any_size_in_any_number_of_files_is_unbroken(
    events: int, max_bytes: int, key: str | None, max_files: int
):
    with a_log(events, max_bytes, max_files, key) as path:
        verified = check(path, key)
        files = files_of(path)
        assert verified.finding is None and verified.note == ""
        assert len(files) <= max_files + 1
        assert verified.lines == sum(len(lines) for _, lines in read(path))
        # A file is over its size by no more than its last line.
        for file, lines in read(path):
            assert file.stat().st_size - len(lines[-1]) < max_bytes or len(lines) <= 2
        for _ in range(2):
            with AuditLog(path, max_bytes=max_bytes, max_files=max_files, key=key, fsync=None).opened():
                pass
        assert check(path, key).finding is None


@given(**LOGS, data=st.data())
def test_i9_a_changed_byte_is_found_in_its_line(
    events: int, max_bytes: int, key: str | None, data: st.DataObject
):
    with a_log(events, max_bytes, key=key) as path:
        file, at = data.draw(st.sampled_from(places(path)))
        line = file.read_bytes().splitlines()[at]
        index = data.draw(st.integers(0, len(line) - 1))
        other = data.draw(st.integers(0, 255).filter(lambda byte: byte not in (line[index], 10, 13)))

        def change(lines: list[bytes]) -> None:
            lines[at] = line[:index] + bytes([other]) + line[index + 1 :] + b"\n"

        # `splitlines` of bytes divides at \r as well; lines of a log hold none.
        edit(file, change)
        finding = found(path, key)
        assert (finding.file, finding.line) == (file, at + 1)


@given(**LOGS, data=st.data())
def test_i9_removed_lines_are_found_where_they_were(
    events: int, max_bytes: int, key: str | None, data: st.DataObject
):
    with a_log(events, max_bytes, key=key) as path:
        every = places(path)
        file, at = data.draw(st.sampled_from(every))
        lines = file.read_bytes().splitlines(keepends=True)
        count = data.draw(st.integers(1, len(lines) - at))
        first, last = json.loads(lines[at])["seq"], json.loads(lines[at + count - 1])["seq"]

        edit(file, lambda lines: lines.__delitem__(slice(at, at + count)))
        finding = found(path, key)
        assert finding.kind == ("cut" if last == len(every) else "missing")
        assert (
            f"lines {first} to {last} are missing" in finding.text
            or f"line {first} is missing" in finding.text
        )
        if last < len(every):
            assert json.loads(read_line(finding))["seq"] == last + 1


@pytest.mark.parametrize("place", [0, -1])
def test_u115_a_piece_of_a_line_is_one_that_is_being_written_at_the_end_of_the_log_alone(place: int):
    with a_log(20, 600) as path:
        file, lines = list(read(path))[place]
        begun = b'{"seq":%d,"prev":"' % (json.loads(lines[-1])["seq"] + 1)
        edit(file, lambda lines: lines.append(begun))
        verified = check(path)
        if place:
            assert verified.finding is None and "is not whole" in verified.note
        else:
            assert verified.finding is not None and verified.finding.kind == "torn"
            assert verified.finding.file == file


def test_u115_the_salt_of_a_head_is_sealed_too():
    with a_log(5, 600, key=KEY) as path:
        head = LogHead.path_of(path)
        said = json.loads(head.read_bytes())
        head.write_text(json.dumps({**said, "salt": "0" * 64}))
        assert found(path, KEY).kind == "head"
        with pytest.raises(AuditError, match="its head was changed"):
            with AuditLog(path, key=KEY).opened():
                pass


def test_u115_what_is_set_aside_is_on_disk_before(monkeypatch: pytest.MonkeyPatch):
    unsynced, renamed = set[int](), list[bool]()
    write, sync, rename = os.write, os.fsync, os.rename

    def writing(file: int, data: bytes) -> int:
        unsynced.add(os.fstat(file).st_ino)
        return write(file, data)

    def syncing(file: int) -> None:
        sync(file)
        unsynced.discard(os.fstat(file).st_ino)

    def renaming(old: Path, new: Path) -> None:
        renamed.append(os.stat(old).st_ino in unsynced)
        rename(old, new)

    monkeypatch.setattr(os, "write", writing)
    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    with a_log(20, 600):
        assert renamed and not any(renamed)


def read_line(finding: LogFault) -> bytes:
    return finding.file.read_bytes().splitlines()[finding.line - 1]


@given(**LOGS, data=st.data())
def test_i9_two_lines_that_changed_places_are_found(
    events: int, max_bytes: int, key: str | None, data: st.DataObject
):
    with a_log(events, max_bytes, key=key) as path:
        every = places(path)
        one, other = sorted(
            data.draw(st.lists(st.integers(0, len(every) - 1), min_size=2, max_size=2, unique=True))
        )
        files = dict(read(path))
        (file, at), (far, there) = every[one], every[other]
        files[file][at], files[far][there] = files[far][there], files[file][at]
        for each, lines in files.items():
            each.write_bytes(b"".join(lines))
        finding = found(path, key)
        assert finding.kind == "moved" and (finding.file, finding.line) == (file, at + 1)


@given(**LOGS, data=st.data())
def test_i9_a_line_that_stands_twice_is_found(
    events: int, max_bytes: int, key: str | None, data: st.DataObject
):
    with a_log(events, max_bytes, key=key) as path:
        every = places(path)
        source, target = (data.draw(st.integers(0, len(every) - 1)) for _ in range(2))
        copy = dict(read(path))[every[source][0]][every[source][1]]
        file, at = every[target]
        edit(file, lambda lines: lines.insert(at, copy))
        finding = found(path, key)
        # A copy right before its original looks like one right after it.
        assert finding.kind in ("repeated", "moved")
        assert (finding.file, finding.line) == (file, at + 2 if source == target else at + 1)


@given(events=st.integers(5, 25), max_bytes=st.integers(200, 900), key=LOGS["key"], data=st.data())
def test_i9_a_file_that_is_gone_or_changed_places_is_found(
    events: int, max_bytes: int, key: str | None, data: st.DataObject
):
    with a_log(events, max_bytes, key=key) as path:
        files = files_of(path)
        gone = data.draw(st.sampled_from(files))
        kept = gone.read_bytes()
        gone.unlink()
        assert found(path, key).kind == ("cut" if gone == path else "missing")
        gone.write_bytes(kept)
        one, other = data.draw(st.lists(st.sampled_from(files), min_size=2, max_size=2, unique=True))
        one_data, other_data = one.read_bytes(), other.read_bytes()
        one.write_bytes(other_data)
        other.write_bytes(one_data)
        assert found(path, key).kind == "moved"


@given(events=st.integers(1, 10), data=st.data())
def test_i9_with_a_key_nobody_else_can_write_a_line(events: int, data: st.DataObject):
    with a_log(events, 100_000, key=KEY) as path:
        forge(path, data.draw(st.integers(0, events)), seal_of("the key of somebody else"))
        assert found(path, KEY).kind == "head"
        forge(path, 0, seal_of(None))
        assert found(path, KEY).kind == "head"


def test_i9_without_a_key_who_can_write_every_file_can_write_another_log(tmp_path: Path):
    # What is not promised; docs/audit.md and SECURITY.md say so.
    with a_log(3, 100_000) as path:
        forge(path, 1, seal_of(None))
        assert check(path).finding is None


def test_u76_without_a_key_who_can_write_the_log_can_add_a_line():
    # What is not promised; docs/audit.md and SECURITY.md say so.
    for key in (None, KEY):
        with a_log(3, 100_000, key=key) as path:
            last = json.loads(path.read_bytes().splitlines()[-1])
            line = Chain(Seal(), last["seq"], last["digest"]).line("call", last["time"], {"who": "eve"})
            path.write_bytes(path.read_bytes() + line + b"\n")
            assert (check(path, key).finding is None) is (key is None)


def forge(path: Path, at: int, seal: Seal) -> None:
    """Change a line, and make the chain and the head anew."""
    fields = [json.loads(line) for line in path.read_bytes().splitlines()]
    fields[at]["who"] = "somebody else"
    lines: list[bytes] = []
    digest = "0" * 64
    for one in fields:
        del one["digest"]
        said = json.dumps({**one, "prev": digest}, separators=(",", ":"))[:-1].encode()
        digest = seal.digest(said)
        lines.append(said + b',"digest":"%s"}' % digest.encode())
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    head = LogHead(len(lines), digest, path.stat().st_size, "00")
    LogHead.path_of(path).write_bytes(head.encoded(seal))


def test_i9_a_head_that_is_gone_or_changed_is_found():
    with a_log(3, 100_000) as path:
        head = LogHead.path_of(path)
        kept = head.read_bytes()
        read = ReadHead.of(kept)
        assert read is not None and read.head.seq == 5
        head.write_bytes(kept.replace(b'"seq": 5', b'"seq": 4'))
        assert found(path) == LogFault("head", head, 0, "the head was changed")
        head.unlink()
        assert found(path).text.startswith("the head is missing")


@pytest.mark.parametrize("run_again", [False, True], ids=["stopped", "continued"])
@pytest.mark.parametrize("digest", ["", sha256(b"a guess").hexdigest(), "of the head"])
def test_u76_a_line_that_somebody_without_the_key_adds_is_found(digest: str, run_again: bool):
    with a_log(3, 100_000, key=KEY) as path:
        read_head = ReadHead.of(LogHead.path_of(path).read_bytes())
        assert read_head is not None
        head = read_head.head
        if digest == "of the head":
            digest = head.digest
        ending = f',"digest":"{digest}"' if digest else ""
        line = f'{{"seq":{head.seq + 1},"prev":"{head.digest}","event":"call","who":"eve"{ending}}}\n'
        with path.open("a") as file:
            file.write(line)
        if run_again:
            with AuditLog(path, key=KEY, fsync=None).opened():
                pass
        finding = found(path, KEY)
        assert (finding.kind, finding.line) == ("changed", head.seq + 1)


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("head", [None, b"", b"\0" * 512])
@pytest.mark.parametrize("cut", [0, 2])
def test_u76_a_log_without_its_head_does_not_start(key: str | None, head: bytes | None, cut: int):
    with a_log(3, 100_000, key=key) as path:
        edit(path, lambda lines: lines.__delitem__(slice(len(lines) - cut, None)))
        kept, place = path.read_bytes(), LogHead.path_of(path)
        place.unlink() if head is None else place.write_bytes(head)
        for _ in range(2):
            with pytest.raises(AuditError, match=r"the head .* is missing .* bring audit.jsonl.head back"):
                AuditLog(path, key=key).open()
        assert path.read_bytes() == kept
        assert found(path, key).kind == "head"


@pytest.mark.parametrize(
    "odd",
    [
        b"[" * 100_000,
        b'{"seq":1e400,"digest":"","size":1,"salt":"","keyed":true,"seal":""}',
        b'{"seq":1,"digest":"\\ud800","size":1,"salt":"","keyed":true,"seal":"\\ud800"}',
        b'{"seq":1,"digest":"","size":1,"salt":"","keyed":true,"seal":"\\u00e9"}',
    ],
)
def test_u76_odd_texts_in_the_files_of_a_log_are_found_and_end_nothing(odd: bytes):
    with a_log(events=5, max_bytes=100_000, key=KEY) as path:
        path.with_name(f"{path.name}.handed").write_bytes(odd)
        write_more(path, 1, max_files=10)
        with AuditLog(path, key=KEY, fsync=None).opened() as log:
            log.take_over()
        assert check(path, KEY).finding is None
        edit(path, lambda lines: lines.__setitem__(2, odd + b"\n"))
        assert found(path, KEY).line == 3
        LogHead.path_of(path).write_bytes(odd)
        assert found(path, KEY).kind == "head"
        with pytest.raises(AuditError):
            write_more(path, 1, max_files=10)


def write_more(path: Path, events: int, max_files: int) -> None:
    with AuditLog(path, max_bytes=900, max_files=max_files, key=KEY, fsync=None).opened() as log:
        for number in range(events):
            log.record("call", tool="more", number=number)


def asides(path: Path) -> list[Path]:
    return [file for file in files_of(path) if file != path]


@pytest.mark.parametrize(
    "gone", ["first lines", "log", "oldest", "two oldest", "all asides", "empty", "every"]
)
def test_u76_what_was_removed_stays_missing_after_the_log_went_on_and_rotated(gone: str):
    with a_log(events=20, max_bytes=100_000 if gone in ("lines", "log") else 900, key=KEY) as path:
        assert check(path, KEY).finding is None
        match gone:
            case "lines":
                edit(path, lambda lines: lines.__delitem__(slice(0, 3)))
            case "log":
                path.write_bytes(b"")
            case "empty":
                asides(path)[0].write_bytes(b"")
            case _:
                [file.unlink() for file in asides(path)[: {"oldest": 1, "two oldest": 2}.get(gone, 100)]]
                path.unlink() if gone == "every" else None
        assert gone == "every" or found(path, KEY)
        for _ in range(2):
            write_more(path, 12, max_files=100)
        assert found(path, KEY).kind in ("missing", "moved")


def test_u76_a_file_in_the_place_of_a_removed_one_does_not_hide_that_it_is_gone(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    write_more(path, 40, max_files=6)
    before = check(path, KEY)
    assert before.finding is None and len(asides(path)) == 6
    oldest, second, third = asides(path)[:3]
    second.unlink()
    planted = path.with_name(f"{path.name}.{int(third.suffix[1:]) + 1:012d}")
    planted.touch()
    while third.exists():
        write_more(path, 1, max_files=6)
    planted.unlink(missing_ok=True)
    assert found(path, KEY).kind == "missing"


def decoys(path: Path, kind: str) -> list[Path]:
    """Files with the names of full ones, made without the key."""
    full, last = (one.read_bytes().splitlines(keepends=True) for one in asides(path)[-2:])
    numbers = range(999_999_999_900, 999_999_999_909)
    match kind:
        case "empty":
            made = dict.fromkeys(numbers, b"")
        case "of its lines":
            made = {json.loads(line)["seq"]: line for line in [*full[1:], *last[1:]]}
        case "split off":
            asides(path)[-2].write_bytes(full[0])
            asides(path)[-1].write_bytes(last[0])
            made = {json.loads(line)["seq"]: line for line in [*full[1:], *last[1:]]}
        case _:
            other = path.parent / "other" / path.name
            other.parent.mkdir()
            with AuditLog(other, max_bytes=700, key=KEY, fsync=None).opened() as log:
                for number in range(60):
                    log.record("call", tool="other", number=number)
            made = {int(one.suffix[1:]): one.read_bytes() for one in asides(other)}
    files = {path.with_name(f"{path.name}.{number:012d}"): data for number, data in made.items()}
    files = {file: data for file, data in files.items() if not file.exists()}
    for file, data in files.items():
        file.write_bytes(data)
    assert len(files) > 2
    return list(files)


@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
@pytest.mark.parametrize("kind", ["empty", "of its lines", "split off", "of another log"])
def test_u76_files_that_somebody_puts_beside_a_log_make_it_remove_none_of_its_own(
    tmp_path: Path, kind: str, running: bool
):
    path = tmp_path / "audit.jsonl"
    write_more(path, 60, max_files=4)
    own = asides(path)
    assert len(own) == 4 and check(path, KEY).finding is None
    with (
        AuditLog(path, max_bytes=900, max_files=4, key=KEY, fsync=None).opened() if running else nullcontext()
    ):
        made = decoys(path, kind)
        assert kind == "split off" or found(path, KEY)
    for _ in range(3):
        write_more(path, 1, max_files=4)
    assert all(one.exists() for one in made), "what is not of the log is not its to remove"
    assert len([one for one in asides(path) if one not in made]) == 4
    if kind != "split off":
        for one in made:
            one.unlink()
        assert check(path, KEY).finding is None


def test_u76_an_empty_file_with_the_name_of_a_full_one_is_named(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    write_more(path, 20, max_files=4)
    foreign = path.with_name(f"{path.name}.999999999999")
    foreign.touch()
    finding = found(path, KEY)
    assert (finding.kind, finding.file) == ("foreign", foreign)
    assert "it does not begin with line 999999999999; move it away" in finding.text


@pytest.mark.parametrize("name", ["000000000002", "999999999999"])
def test_u76_a_pipe_with_the_name_of_a_full_file_holds_nothing_up(tmp_path: Path, name: str):
    path = tmp_path / "audit.jsonl"
    os.mkfifo(path.with_name(f"{path.name}.{name}"))

    checked = list[VerifiedLog]()

    def work() -> None:
        write_more(path, 20, max_files=2)
        checked.append(check(path, KEY))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert checked and checked[0].finding is None and len(asides(path)) == 2


@pytest.mark.parametrize(("left", "max_files"), [(None, 1), (None, 2), (None, 3), (b"", 3), (b'{"seq":', 4)])
def test_i9_u76_a_log_that_was_ended_between_two_files_is_unbroken_and_keeps_as_many_as_before(
    tmp_path: Path, left: bytes | None, max_files: int
):
    path = tmp_path / "audit.jsonl"
    write_more(path, 40, max_files)
    first = json.loads(path.read_bytes().splitlines()[0])["seq"]
    path.rename(path.with_name(f"{path.name}.{first:012d}"))
    if left is not None:
        path.write_bytes(left)
    for _ in range(12):
        write_more(path, 2, max_files)
        assert check(path, KEY).finding is None and len(asides(path)) == max_files


def test_i9_a_log_with_a_key_asks_for_it():
    with a_log(3, 100_000, key=KEY) as path:
        assert found(path).kind == "key"
        assert (
            found(path, "another key of some length").text
            == "the head was changed, or the key is another one"
        )


def test_i9_files_that_were_set_aside_are_checked_alone():
    with a_log(20, 500) as path:
        aside = files_of(path)[1:3]
        shutil.copytree(path.parent, elsewhere := path.parent / "elsewhere")
        files = [elsewhere / one.name for one in aside]
        verified = verify(files)[0]
        assert verified.finding is None and verified.files == tuple(files)
        assert verify([files[0]])[0].finding is None
        files[0].write_bytes(files[0].read_bytes().replace(b"tool_", b"tull_", 1))
        assert verify(files)[0].finding is not None


def test_i9_the_chain_goes_on_behind_a_cut_so_that_the_cut_stays_visible():
    with a_log(5, 100_000) as path:
        edit(path, lambda lines: lines.__delitem__(slice(-2, None)))
        with AuditLog(path, fsync=None).opened():
            pass
        finding = found(path)
        assert finding.kind == "missing" and finding.text == "lines 6 to 7 are missing before line 8"


def test_i9_a_torn_last_line_is_no_finding_and_is_removed_by_the_next_run():
    with a_log(5, 100_000) as path:
        whole = path.read_bytes()
        digest = json.loads(whole.splitlines()[-1])["digest"]
        path.write_bytes(whole + b'{"seq":8,"prev":"%s","event":"ca' % digest.encode())
        verified = check(path)
        assert verified.finding is None and verified.lines == 7 and "not whole" in verified.note
        with AuditLog(path, fsync=None).opened():
            pass
        assert check(path).finding is None and check(path).note == ""
        resumed = json.loads(path.read_bytes().splitlines()[7])
        assert resumed["event"] == "resumed" and resumed["torn"] > 80


def test_i9_what_is_no_log_is_said(tmp_path: Path):
    with pytest.raises(AuditError, match="there is no audit log"):
        check(tmp_path / "none.jsonl")
    (tmp_path / "notes").write_text("a note\n")
    assert found(tmp_path / "notes").kind == "head"
