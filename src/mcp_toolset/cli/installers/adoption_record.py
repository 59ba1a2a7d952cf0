"""`AdoptionRecord`: what a client's file was before its servers were adopted; kept until they are back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset._records import replace
from mcp_toolset.cli.installers.clients import ClientName, Machine
from mcp_toolset.cli.installers.replacing import mend_of
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.errors import ConfigError

__all__ = ["AdoptionRecord"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """One client's file that was adopted. It contains secrets of servers, so only the owner can read it.

    Attributes:
        client: The client.
        path: Its file.
        original: The file's text before the first adoption.
        adopted: Digests of the file's text after each adoption, the last one last.
        hub_path: The hub's file.
        names: The servers' names in the hub's file, by their names in the client.
        entries: The servers' entries as the client had them.
    """

    client: ClientName
    path: str
    original: str = field(repr=False)
    adopted: tuple[str, ...]
    hub_path: str
    names: Mapping[str, str]
    entries: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(
        cls,
        client: ClientName,
        path: Path,
        before: str,
        after: str,
        hub: Path,
        names: Mapping[str, str],
        entries: Mapping[str, object],
    ) -> AdoptionRecord:
        return cls(client, str(path), before, (_digest(after),), str(hub), names, entries)

    @classmethod
    def read(cls, path: Path, machine: Machine) -> AdoptionRecord | None:
        """The record of a client's file; `None` if its servers are not adopted."""
        file = _file(path, machine)
        try:
            data = _table_in(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(file, path, str(error)) from None
        if data.pop("version", _VERSION) != _VERSION:
            raise ConfigError(f"{file}: written by another version of mcp-toolset; use that version")
        try:
            data["adopted"] = tuple(data["adopted"])
            return cls(**data)
        except (KeyError, TypeError) as error:
            raise _damaged(file, path, f"{type(error).__name__}: {error}") from None

    @classmethod
    def read_all(cls, machine: Machine) -> list[AdoptionRecord]:
        """The records of all clients, for `discover`."""
        paths = [_path_in(file) for file in _records(machine)]
        return [record for path in paths if path and (record := cls.read(Path(path), machine)) is not None]

    @property
    def hub(self) -> Path:
        return Path(self.hub_path)

    def is_applied(self, text: str) -> bool:
        """Whether the one entry has been written: the client's file is no longer as it was."""
        return text != self.original

    def is_unchanged(self, text: str) -> bool:
        """Whether the client's file is as the only adoption has left it, or as it was before."""
        return text == self.original or (len(self.adopted) == 1 and _digest(text) == self.adopted[-1])

    def extended(self, entries: Mapping[str, object], names: Mapping[str, str], after: str) -> AdoptionRecord:
        """The record with further servers of the same file, whose names are not in it yet."""
        return replace(
            self,
            adopted=(*self.adopted, _digest(after)),
            names={**self.names, **names},
            entries={**self.entries, **entries},
        )

    def write(self, machine: Machine) -> None:
        file = _file(Path(self.path), machine)
        data = json.dumps({"version": _VERSION, **asdict(self)})
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(file, data.encode())
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be written ({error.strerror}); nothing was changed, {mend_of(error)}"
            ) from None

    def remove(self, machine: Machine) -> None:
        """Remove the record: the servers are back."""
        _file(Path(self.path), machine).unlink(missing_ok=True)


def _folder(machine: Machine) -> Path:
    return machine.application_data / "mcp-toolset" / "adopted"


def _records(machine: Machine) -> list[Path]:
    return sorted(_folder(machine).glob("*.json"))


def _file(path: Path, machine: Machine) -> Path:
    """The record of a client's file, found by the real path; by the path if a link was replaced since."""
    name = hashlib.sha256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    usual = _folder(machine) / f"{name}.json"
    if usual.exists():
        return usual
    return next((file for file in _records(machine) if _path_in(file) == str(path)), usual)


def _path_in(file: Path) -> str | None:
    """The path of the client's file that a record is of; `None` if the record is damaged."""
    try:
        return _table_in(file).get("path")
    except (OSError, ValueError):
        return None


def _table_in(file: Path) -> dict[str, Any]:
    data: object = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError("no object")
    return cast("dict[str, Any]", data)


def _damaged(file: Path, path: Path, why: str) -> ConfigError:
    copies = f"the copies {path}.*.bak are the file as it was"
    return ConfigError(f"{file}: cannot be read ({why}); {copies}; take one of them, and remove this file")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
