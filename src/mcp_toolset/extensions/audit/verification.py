"""`verify`: checks that an audit log is unbroken, or finds the line that is changed, missing or misplaced.

Each line holds the digest of the line before it. The chain is checked on bytes; lines are parsed only where
the chain breaks, to name the fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import AuditError
from mcp_toolset.extensions.audit.log_files import FIRST, LogHead, ReadHead, Seal, files_of

Kind = Literal["changed", "missing", "moved", "repeated", "cut", "torn", "head", "key", "foreign"]

_ROTATED: Final = re.compile(r"\.\d{12}$")
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class LogFault:
    """A fault of a log: its kind and its place.

    Attributes:
        kind: `changed`: a line was changed; `missing`: lines are missing; `moved`: a line is out of order;
            `repeated`: a line is there twice, or was inserted; `cut`: lines at the end are missing; `torn`: a
            line has no end; `head`: the head is missing or was changed; `key`: the log has a key, and none is
            given; `foreign`: a file has a name like a rotated file of the log, and is none.
        line: The line in this file, from 1; 0 for a fault of the whole file.
    """

    kind: Kind
    file: Path
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """The result for one log; `lines` is the number of unbroken lines, from the first one on."""

    lines: int
    files: tuple[Path, ...]
    began: str = ""
    ended: str = ""
    finding: LogFault | None = None
    note: str = ""


def verify(paths: Iterable[Path], seal: Seal | None = None) -> list[VerifiedLog]:
    """Check logs, each with all its files; files that were set aside can be given alone."""
    wanted: dict[Path, list[Path]] = {}
    for path in paths:
        wanted.setdefault(path.with_name(_ROTATED.sub("", path.name)), []).append(path)
    return [_stable(log, given, seal or Seal()) for log, given in wanted.items()]


def _stable(log: Path, given: Sequence[Path], seal: Seal) -> VerifiedLog:
    """Check one log, and check it again if it was rotated meanwhile."""
    whole = log in given
    for _ in range(_TRIES):
        files = files_of(log) if whole else sorted(given)
        try:
            result = _Verification(log, files, seal, whole).run()
        except FileNotFoundError as fault:
            if not whole:
                raise AuditError(
                    f"{fault.filename}: there is no such file; give the file of an audit log"
                ) from None
            continue
        except OSError as fault:
            raise AuditError(f"{log}: the audit log cannot be read ({fault.strerror or fault})") from None
        if result.finding is None or not whole or files_of(log) == files:
            return result
    raise AuditError(
        f"{log}: the audit log is rotated too fast to be checked; check the files that were set aside"
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a log, with its file and its number there."""

    file: Path
    number: int
    text: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """The members of its JSON object; empty if it is none."""
        try:
            value: object = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    @property
    def seq(self) -> int:
        """The number of the line in the log; 0 if it has none."""
        seq = self.fields.get("seq")
        return seq if isinstance(seq, int) else 0

    def fault(self, kind: Kind, text: str) -> LogFault:
        return LogFault(kind, self.file, self.number, text)


class _Verification:
    """One pass over the files of a log; `whole` if it has its head and all files that were kept."""

    def __init__(self, log: Path, files: Sequence[Path], seal: Seal, whole: bool) -> None:
        self._log, self._seal, self._whole = log, seal, whole
        self._files = files
        self._seq, self._digest = 0, FIRST
        self._count = 0
        self._last: _Line | None = None
        self._head = LogHead()
        self._note = ""

    def run(self) -> VerifiedLog:
        if not self._files:
            raise AuditError(f"{self._log}: there is no audit log; give the file that it is written to")
        firsts = [first for file in self._files if (first := _first_line(file)) is not None]
        finding = (self._read_head() if self._whole else None) or self._begin_at_first(firsts)
        for file in self._files:
            finding = finding or self._follow(file)
        # A changed line is noticed at the line after it, when it was counted already.
        if finding and self._last and (finding.file, finding.line) == (self._last.file, self._last.number):
            self._count -= 1
        finding = finding or self._end() or self._foreign()
        began = firsts[0].fields.get("time", "") if firsts else ""
        ended = self._last.fields.get("time", "") if self._last else ""
        return VerifiedLog(self._count, tuple(self._files), str(began), str(ended), finding, self._note)

    def _read_head(self) -> LogFault | None:
        """Read the head, which seals the number and the digest of the last line."""
        path = LogHead.path_of(self._log)
        data = path.read_bytes() if path.exists() else b""
        read = ReadHead.of(data)
        if read is None:
            what = "was changed" if data.strip() else "is missing"
            return LogFault(
                "head", path, 0, f"the head {what}: whether lines at the end are gone cannot be told"
            )
        if read.keyed and not self._seal.is_keyed:
            return LogFault(
                "key", path, 0, "the log has a key; give the variable that holds it with --key-env"
            )
        if not read.is_sealed(self._seal):
            other = ", or the key is another one" if self._seal.is_keyed else ""
            return LogFault("head", path, 0, f"the head was changed{other}")
        self._head = read.head
        return None

    def _begin_at_first(self, firsts: Sequence[_Line]) -> LogFault | None:
        """Begin the check at line 1, or at the oldest line that rotation has kept."""
        if not firsts:
            return None
        first, seq, prev = firsts[0], firsts[0].seq, firsts[0].fields.get("prev")
        if seq > 1 and isinstance(prev, str):
            self._seq, self._digest = seq - 1, prev
        if not self._whole:
            return None
        # The line that removed the files before the first one names the last of them; so does the first line.
        rotated = [one.fields for one in firsts if one.fields.get("event") == "rotated"]
        removing = [one.get("removed") for one in rotated if one.get("from") == seq]
        removed = _numbers_in(removing[0]) if removing else []
        if seq > 1 and (not removed or _numbers_in([first.fields.get("file")]) not in ([], removed[-1:])):
            kept = (at for one in rotated if isinstance(at := one.get("from"), int) and at < seq)
            return self._skipped(first, max(kept, default=1), seq)
        return None

    def _follow(self, file: Path) -> LogFault | None:
        """Check the lines of one file, from the digest of the line before them."""
        seq, digest, digest_of = self._seq, self._digest, self._seal.digest_of
        sealed, seal = self._head.seq, self._head.digest
        number, line, broken = 0, b"", b""
        with file.open("rb") as lines:
            for whole in lines:
                expected = b'{"seq":%d,"prev":"%s","event":' % (seq + 1, digest.encode())
                if whole[-1] != 10 or not whole.startswith(expected) or not (own := digest_of(whole[:-1])):
                    broken = whole
                    break
                line = whole[:-1]
                number, seq, digest = number + 1, seq + 1, own
                if seq == sealed and digest != seal:
                    break
            before = self._last
            self._seq, self._digest, self._count = seq, digest, self._count + number
            if number:
                self._last = _Line(file, number, line)
            if broken:
                this = _Line(file, number + 1, broken.rstrip(b"\n"))
                if not broken.endswith(b"\n"):
                    return self._torn(this)
                later = (_first_line(one) for one in self._files[self._files.index(file) + 1 :])
                following = next(lines, b"") or next(
                    (first.text for first in later if first is not None), b""
                )
                return self._broken_at(this, following.rstrip(b"\n"))
        if seq == sealed and digest != seal and self._last is not None:
            self._count, changed, self._last = self._count - 1, self._last, before
            return changed.fault("changed", f"line {seq} was changed")
        return None

    def _broken_at(self, this: _Line, following: bytes) -> LogFault:
        """The fault of a line that breaks the chain; `following` is the text of the line after it."""
        expected, seq, before = self._seq + 1, this.seq, self._last
        if not seq:
            changed = before if before is not None and not before.seq else this
            return changed.fault("changed", f"this is not a line of the log: line {expected} should be here")
        fits = this.fields.get("prev") == self._digest
        # A line is genuine if the next line or the head has its digest.
        digest = self._seal.digest_of(this.text)
        genuine = bool(digest) and digest in (
            _Line(this.file, 0, following).fields.get("prev"),
            self._head.digest,
        )
        if seq == expected and genuine and not fits and before is not None:
            return before.fault("changed", f"line {expected - 1} was changed")
        if fits or seq == expected:
            return this.fault("changed", f"line {expected} was changed")
        if seq > expected:
            return self._skipped(this, expected, seq)
        if before is not None and seq == before.seq and before.text != this.text and genuine:
            return before.fault("repeated", f"a line {seq} was put in before line {seq}")
        return this.fault("repeated", f"line {seq} stands here again, where line {expected} should be")

    def _skipped(self, this: _Line, expected: int, seq: int) -> LogFault:
        """The fault of a line that has a later number than expected."""
        opening = b'{"seq":%d,' % expected
        for file in self._files:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.startswith(opening):
                        where = f"line {expected} is at {file.name}:{number}"
                        return this.fault("moved", f"line {seq} is out of order: {where}")
        gone = f"line {expected} is" if seq == expected + 1 else f"lines {expected} to {seq - 1} are"
        return this.fault("missing", f"{gone} missing before line {seq}")

    def _torn(self, this: _Line) -> LogFault | None:
        """The fault of a line without an end; none for the last line, which a killed program may leave so."""
        begun = b'{"seq":%d,"prev":"%s","event":' % (self._seq + 1, self._digest.encode())
        if this.file == self._files[-1] and (this.text.startswith(begun) or begun.startswith(this.text)):
            self._note = "the last line is not whole: it is being written, or the program was killed"
            return None
        return this.fault("torn", f"line {self._seq + 1} is not whole")

    def _end(self) -> LogFault | None:
        """The fault of lines that are missing at the end: the head has the number of the last line."""
        missing = self._head.seq - self._seq
        if missing <= 0:
            return None
        file, number = (self._last.file, self._last.number) if self._last else (self._files[-1], 0)
        gone = (
            f"line {self._head.seq} is" if missing == 1 else f"lines {self._seq + 1} to {self._head.seq} are"
        )
        return LogFault("cut", file, number, f"{gone} missing at the end, after line {self._seq}")

    def _foreign(self) -> LogFault | None:
        """The fault of a file that is not from this log: its name is not the number of its first line."""
        for file in self._files:
            number, first = _numbers_in([file.name]), _first_line(file)
            if number and (first is None or first.seq != int(number[0][1:])):
                begins = f"it does not begin with line {int(number[0][1:])}"
                return LogFault("foreign", file, 0, f"this is no file of the log: {begins}; move it away")
        return None


def _numbers_in(names: object) -> list[str]:
    """The numbers at the end of the names of rotated files, such as `.000000000042`."""
    every = cast("list[object]", names) if isinstance(names, list) else []
    return [match[0] for name in every if (match := _ROTATED.search(str(name)))]


def _first_line(file: Path) -> _Line | None:
    with file.open("rb") as lines:
        line = next(lines, b"")
    return _Line(file, 1, line.rstrip(b"\n")) if line else None
