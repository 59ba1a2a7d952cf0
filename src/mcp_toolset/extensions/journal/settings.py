"""Settings of the journal, for all tools and in the entry of a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self, get_args

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config import tables
from mcp_toolset.config.extensions import ServerSettings, Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.rule_patterns import check_own_names, check_patterns
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.journal.journal_store import TTL, Mode
from mcp_toolset.security.patterns import check_pattern

_MODES: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": {"enum": [*get_args(Mode)]}}
_PLACE: Final[Mapping[str, Any]] = {"type": "string", "pattern": r"^(_meta|arguments)\..+$"}
_TIMEOUT: Final[tables.Schema] = {"type": "float", "ge": 0, "strict": True, "allow_inf_nan": False}
_URL: Final[tables.Schema] = {**tables.TEXT, "pattern": "://"}
_FEW: Final = 'an object such as {"charge_*": "once"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings(Settings):
    """The journal that a file asks for; `JournalGuard` says more of each key."""

    says: ClassVar = tables.Meaning(
        "Records calls, so that [a repeat has no second effect](journal.md): `true`, or an object.", True
    )
    protects: ClassVar = True

    path: Path | None = tables.key(
        tables.PATH,
        "the path of a file, as a string",
        meaning="The file; one in the user's folder for state if left out.",
        example="calls.sqlite3",
    )
    store: str | None = tables.key(
        _URL,
        "a URL, as a string",
        meaning="The store of the journal in place of a file: Redis, Valkey or PostgreSQL.",
        example="postgresql://db.example.com/calls",
        secret=True,
        published={"type": "string", "minLength": 1},
    )
    ttl: float = tables.key(
        tables.SECONDS,
        "a positive number of seconds",
        TTL,
        meaning="Seconds for which a call is remembered.",
        example=86_400,
    )
    timeout: float = tables.key(
        _TIMEOUT,
        "a number of seconds, 0 or more",
        30.0,
        meaning="Seconds that a repeat waits for the call that runs.",
        example=10,
        live=True,
    )
    max_result_bytes: int = tables.key(
        tables.COUNT,
        "a positive number of bytes",
        1_000_000,
        meaning="Bytes of a result that are kept, encrypted.",
        example=100_000,
        live=True,
    )
    read_only: bool = tables.key(
        tables.BOOL,
        "true or false",
        False,
        meaning="Whether calls of tools that only read are recorded too.",
        example=True,
        live=True,
    )
    tools: Mapping[str, Any] = tables.key(
        tables.TABLE,
        _FEW,
        {},
        meaning="By pattern of tools: `off`, `once`, or `repeat` if a call may run again after an unknown "
        "outcome.",
        example={"charge_*": "once"},
        live=True,
        published=_MODES,
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        if self.path is not None and self.store is not None:
            raise place.error("`path` and `store` name two places", "leave one of them out")
        _check(self.tools, place.at("tools"), servers)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOfServer(ServerSettings):
    """Settings of the journal in the entry of a server: the calls to record, and the place of the key."""

    journal: bool | Mapping[str, Any] = tables.key(
        tables.any_of(tables.BOOL, tables.TABLE),
        f"false, or {_FEW}",
        True,
        meaning="Which of its calls are [recorded](journal.md), by pattern of its tools: `off`, `once` or "
        "`repeat`; `false` for none.",
        example={"charge_*": "once"},
        published={"anyOf": [{"type": "boolean"}, _MODES]},
    )
    idempotency: str | Mapping[str, str] | None = tables.key(
        tables.any_of(tables.TEXT, tables.TEXT_TABLE),
        'a place such as "arguments.request_id", or an object of such by tool',
        meaning="Where its tools are [told the key of a call](journal.md#tell-a-mounted-server-the-key): one "
        "place, or one for each pattern.",
        example="arguments.request_id",
        published={"anyOf": [_PLACE, {"type": "object", "additionalProperties": _PLACE}]},
    )

    @property
    def modes(self) -> Mapping[str, Mode]:
        """The modes by pattern of its tools."""
        if isinstance(self.journal, bool):
            return {} if self.journal else {"*": "off"}
        return self.journal

    @property
    def places(self) -> Mapping[str, str]:
        """The place of the key in calls of its tools, by pattern."""
        return self.idempotency if isinstance(self.idempotency, Mapping) else {}

    def idle(self, entry: Mapping[str, object]) -> str:
        is_on = entry.get("journal") is True or any(mode != "off" for mode in self.modes.values())
        return "journal" if is_on else "idempotency" if self.idempotency else ""

    def checked(self, place: Place, server: str) -> Self:
        if not isinstance(self.journal, bool):
            _check(self.journal, place.at("journal"), {server: ""})
        at, said = place.at("idempotency"), self.idempotency
        places = {"*": said} if isinstance(said, str) else said or {}
        if not isinstance(said, str):
            check_own_names(server, ((pattern, at.at(pattern)) for pattern in places))
        for pattern, one in places.items():
            where, _, name = one.partition(".")
            if where not in ("_meta", "arguments") or not name:
                raise (at if isinstance(said, str) else at.at(pattern)).error(
                    "cannot be used", 'write "_meta.NAME" or "arguments.NAME"'
                )
        return replace(self, idempotency=places)


def _check(modes: Mapping[str, Any], place: Place, servers: Mapping[str, str]) -> None:
    check_patterns(((pattern, place.at(pattern)) for pattern in modes), servers)
    for pattern, mode in modes.items():
        try:
            check_pattern(pattern, "journal")
        except DefinitionError as fault:
            raise place.at(pattern).error(
                str(fault).removeprefix("journal: "), "correct the pattern"
            ) from None
        if mode not in get_args(Mode):
            known = ", ".join(f'"{one}"' for one in get_args(Mode))
            raise place.at(pattern).error("cannot be used", f"write one of {known}")


SETTINGS: Final = JournalSettings
SERVER_SETTINGS: Final = JournalOfServer
