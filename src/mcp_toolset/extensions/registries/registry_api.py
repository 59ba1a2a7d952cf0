"""`Registry`: a registry of servers over HTTP (`GET /v0.1/servers`, `/v0/servers`).

A registry is a stranger, too: its answers are bounded in time and size, and it sends us to no other host.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass
from mcp_toolset.errors import TargetError
from mcp_toolset.extensions.registries.server_json import ServerJson, decoded, plain
from mcp_toolset.security.egress import MEND_ADDRESS, is_web_address

if TYPE_CHECKING:
    import httpx2

SECONDS: Final = 30.0
"""The deadline of all requests of one command."""

MOST_BYTES: Final = 8 * 1024 * 1024
"""The largest answer."""

_PAGE: Final = 100
_PAGES: Final = 10
_VERSIONS: Final = ("v0.1", "v0")


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry at an address."""

    url: str
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        parts = urlsplit(self.url) if is_web_address(self.url) else None
        if parts is None:
            raise TargetError(f"the registry's address is none; {MEND_ADDRESS}")
        is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme != "https" and not is_here:
            raise TargetError(f"{self.shown}: whoever is on the way could change what runs; use https")

    @property
    def shown(self) -> str:
        from mcp_toolset.upstream.secrets import shown_url

        return shown_url(self.url)

    def search(self, words: str, limit: int, version: str = "latest") -> list[ServerJson]:
        """The servers whose names have the words, at most `limit`; what is no description is left out.

        Raises:
            TargetError: the registry does not answer, or its answer is none.
        """
        found: list[ServerJson] = []
        for page in self._pages(words, min(limit, _PAGE), version):
            found += page
            if len(found) >= limit:
                break
        return found[:limit]

    def _pages(self, words: str, size: int, version: str) -> Iterator[list[ServerJson]]:
        import httpx2

        until, cursor, seen = monotonic() + self.seconds, "", set[str]()
        with httpx2.Client(timeout=self.seconds, follow_redirects=False) as client:
            said, api = self._first(client, words, size, version, until)
            for _ in range(_PAGES):
                yield list(self._servers(said))
                metadata = said.get("metadata")
                told = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
                cursor = told.get("nextCursor") or told.get("next_cursor") or ""
                if not isinstance(cursor, str) or not cursor or cursor in seen:
                    return
                seen.add(cursor)
                asked = _asked(words, size, version) | {"cursor": cursor}
                said = self._got(client, api, asked, until) or {}

    def _first(
        self, client: httpx2.Client, words: str, size: int, version: str, until: float
    ) -> tuple[dict[str, Any], str]:
        for api in _VERSIONS:
            said = self._got(client, api, _asked(words, size, version), until)
            if said is not None:
                return said, api
        raise TargetError(
            f"{self.shown}: has no {' or '.join(f'/{one}/servers' for one in _VERSIONS)}; check it"
        )

    def _got(
        self, client: httpx2.Client, api: str, asked: dict[str, str], until: float
    ) -> dict[str, Any] | None:
        """The object at `/API/servers`; `None` if there is none (404)."""
        import httpx2

        url, data = f"{self.url.rstrip('/')}/{api}/servers", b""
        try:
            with client.stream("GET", url, params=asked, headers={"Accept": "application/json"}) as answer:
                if answer.status_code == 404:
                    return None
                if answer.status_code != 200:
                    raise TargetError(self._why(answer))
                for chunk in answer.iter_bytes(65536):
                    data += chunk
                    if len(data) > MOST_BYTES:
                        raise TargetError(
                            f"{self.shown}: its answer has more than {MOST_BYTES} bytes; search for more"
                        )
                    if monotonic() > until:
                        raise TargetError(
                            f"{self.shown}: did not answer in {self.seconds:g} s; try again later"
                        )
        except (httpx2.HTTPError, httpx2.InvalidURL) as fault:
            kind = type(fault).__name__
            raise TargetError(
                f"{self.shown}: cannot be reached ({kind}); check the address and the network"
            ) from None
        value = decoded(data, self.shown)
        if not isinstance(value, dict):
            raise TargetError(f"{self.shown}: its answer is no object of a registry; check the address")
        return cast("dict[str, Any]", value)

    def _why(self, answer: httpx2.Response) -> str:
        if 300 <= answer.status_code < 400:
            return f"{self.shown}: sends to another address; give that one with --registry if you trust it"
        return (
            f"{self.shown}: answered with status {answer.status_code}; try again later, or check the address"
        )

    def _servers(self, said: dict[str, Any]) -> Iterator[ServerJson]:
        listed = said.get("servers")
        for one in cast("list[object]", listed) if isinstance(listed, list) else []:
            try:
                yield ServerJson.of(one, self.shown)
            except TargetError:
                # One that is broken hides no other one.
                continue


def _asked(words: str, size: int, version: str) -> dict[str, str]:
    return {"search": plain(words, "the search"), "limit": str(size), "version": version}
