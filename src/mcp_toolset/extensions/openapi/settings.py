"""The key of a server's entry that mounts an API by its OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass as standard
from pathlib import Path
from typing import Any, ClassVar, Final, Self, cast
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.extensions import ServerSettings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.sections import Strict
from mcp_toolset.config.tables import ANY, BOOL, SECONDS, TEXT, TEXT_TABLE, Table, key
from mcp_toolset.errors import DefinitionError

_DEFER_FROM: Final = 500
_REFRESH: Final = 3600.0


@standard(frozen=True, kw_only=True)
class OpenApiEntry(Strict):
    """`openapi` as an object."""

    document: str = key(
        {**TEXT, "min_length": 1},
        "the address or the path of an OpenAPI document",
        meaning="The address of the document, or its path in the folder of the file.",
        example="https://api.example.com/openapi.json",
        required=True,
    )
    server: str = key(
        TEXT,
        "an address such as https://api.example.com/v1",
        "",
        meaning="The address of the API, in the place of those that the document names.",
        example="https://api.example.com/v1",
    )
    credentials: Mapping[str, str] = key(
        TEXT_TABLE,
        'an object such as {"api_key": "${KEY}"}',
        {},
        meaning="Secrets by the names of security schemes of the document: a key, a token, or "
        "`user:password`.",
        example={"api_key": "${KEY}"},
        secret=True,
    )
    files: str | None = key(
        TEXT,
        "the path of a folder",
        meaning="The folder of files that arguments may name; without it, files are `data:` URIs.",
        example="uploads",
    )
    defer_from: int = key(
        {"type": "int", "ge": 0},
        "a number of operations, or 0",
        _DEFER_FROM,
        meaning="The number of operations from which on they are found by search; 0 for never.",
        example=100,
    )
    refresh: float = key(
        SECONDS,
        "a number of seconds",
        _REFRESH,
        meaning="Seconds after which the document is read again.",
        example=600,
    )
    output_schemas: bool = key(
        BOOL,
        "true or false",
        False,
        meaning="Whether tools have output schemas, which the answers of the API are made to fit.",
        example=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiOfServer(ServerSettings):
    """The document of an API; `of_entry` replaces `openapi` by `ApiOptions`."""

    reaches: ClassVar = "openapi"
    protects: ClassVar = False
    common: ClassVar = ("openapi",)
    parts: ClassVar[Mapping[str, type[Table]]] = {"openapi": OpenApiEntry}

    openapi: Any = key(
        ANY,
        "the address or the path of an OpenAPI document, or an object with `document`",
        meaning="Mounts an API by its [OpenAPI document](openapi.md), in the place of a command or a URL.",
        example="https://petstore3.swagger.io/api/v3/openapi.json",
        published={"anyOf": [{"type": "string"}, {"$ref": "#/$defs/openapi"}]},
        secret=True,
    )

    @property
    def mounts(self) -> str:
        return "" if self.openapi is None else "openapi"

    @property
    def address(self) -> str:
        return self.openapi.address

    def target(self) -> Any:
        from mcp_toolset.extensions.openapi.mounting import OpenApiTarget

        return OpenApiTarget(self.openapi)

    def of_entry(self, entry: Any, place: Place, expanded: Callable[..., str]) -> Self:
        if self.openapi is None:
            return self
        from mcp_toolset.extensions.openapi.mounting import ApiOptions

        at = place.at("openapi")
        said: object = self.openapi
        is_short = isinstance(said, str)
        if not is_short and not isinstance(said, dict):
            raise at.error("must be a text or an object", 'write it as "https://…/openapi.json"')
        read = validated(OpenApiEntry, {"document": said} if is_short else cast("object", said), at)
        folder = Path(place.source).absolute().parent

        def text(value: str, *steps: str) -> str:
            return expanded(value, "openapi", *(() if is_short else steps))

        document = text(read.document, "document").strip()
        source = (
            document
            if urlsplit(document).scheme in ("http", "https") or "://" in document
            else folder / document
        )
        files = text(read.files or "", "files").strip()
        options = ApiOptions(
            source,
            text(read.server, "server").rstrip("/"),
            {name: text(value, "credentials", name) for name, value in read.credentials.items()},
            folder / Path(files).expanduser() if files else None,
            read.defer_from,
            read.refresh,
            read.output_schemas,
        )
        if not entry.disabled and isinstance(source, Path) and not source.is_file():
            raise (at if is_short else at.at("document")).error("no such file", "correct the path")
        try:
            if not entry.disabled:
                options.check()
        except DefinitionError as fault:
            cause, _, mend = str(fault).partition("; ")
            raise at.error(cause, mend or "correct it") from None
        return replace(self, openapi=options)


SERVER_SETTINGS: Final = OpenApiOfServer
