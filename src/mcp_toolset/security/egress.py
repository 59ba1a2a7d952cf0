"""`Egress`: where requests may go whose address a mounted server has named.

A remote server must not have the bridge send requests into the bridge's own network. Each address of a host
is judged after its name was resolved, right before it is connected to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

MEND_ADDRESS: Final = "write it as https://host/path, and `/`, `?`, `#` in a password as %2F, %3F, %23"

Refusal = Callable[[str, str], str]
"""Why a request for a URL may not go to an IP address; empty if it may."""

_LOOPBACK: Final = "a loopback address"
_LINK_LOCAL: Final = "a link-local address"
_PRIVATE: Final = "a private address"
_EMBEDDING: Final = tuple(map(ip_network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""IPv6 addresses that end with an IPv4 address, which they lead to or have led to."""

_HOST: Final = re.compile(r"(?:\*\.)?(?:[\w-]+\.)*(?!\d+\.?$)(?!-)[\w-]+\.?")
"""A host, or all hosts below one; a host whose last part is a number would be an address."""

_PUBLIC_V6: Final = ip_network("2000::/3")
_SPECIAL: Final = tuple(map(ip_network, ("192.0.0.0/24", "3fff::/20")))
"""Networks, one of them with metadata of a cloud, that older Pythons take for public."""

_MEND: Final = "nothing was sent; if it is meant, add the host to `allow` of `egress`"


@dataclass(frozen=True, slots=True)
class Egress:
    """The hosts and networks that every mounted server may send the bridge to.

    Attributes:
        allow: Hosts (`login.corp`), all hosts below one (`*.corp`), addresses and networks (`10.0.0.0/8`).
    """

    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for rule in self.allow:
            if not _is_network(rule) and not _HOST.fullmatch(rule):
                raise DefinitionError(
                    f"`egress` allows {rule!r}, which is no host and no network; write it as "
                    "`login.example.com`, `*.example.com` or `10.0.0.0/8`"
                )

    def refusal(self, url: str, address: str, own: str, *named: str) -> str:
        """Why a request to `url` may not go to `address`; empty if it may.

        Loopback and link-local addresses are for servers that have such an address themselves. Private ones
        are for servers on loopback or at a private address, and for hosts that the entry of the server names.

        Args:
            url: Where the request goes.
            address: An IP address of its host.
            own: The configured address of the mounted server.
            named: Other addresses in the entry of the server, such as an issuer.
        """
        kind, to = kind_of(address), urlsplit(url)
        home = _kind_of_host(urlsplit(own).hostname or "")
        host = to.hostname or ""
        if kind in ("", home) or (kind == _PRIVATE and home == _LOOPBACK) or self._allows(host, address):
            return ""
        for each in (own, *named):
            there = urlsplit(each)
            # With TLS another host that the name leads to for a moment cannot prove that it is meant.
            is_it = there.hostname == host and (to.scheme == "https" or there.netloc == to.netloc)
            if is_it and kind in (_PRIVATE, _kind_of_host(host)):
                return ""
        return f"{host} is at {address}, {kind}, where a server elsewhere must not send requests; {_MEND}"

    def _allows(self, host: str, address: str) -> bool:
        host, ip = host.lower().rstrip("."), _plain(address)
        for rule in self.allow:
            if _is_network(rule):
                if ip in ip_network(rule, strict=False):
                    return True
            elif host == rule.lower() or (rule.startswith("*.") and host.endswith(rule[1:].lower())):
                return True
        return False


def kind_of(address: str) -> str:
    """Which kind of an address it is, in words; empty for one of the public internet."""
    ip = _plain(address)
    if ip.is_loopback or ip.is_unspecified:
        return _LOOPBACK
    if ip.is_link_local:
        return _LINK_LOCAL
    is_odd = any(ip in network for network in _SPECIAL) or (
        isinstance(ip, IPv6Address) and ip not in _PUBLIC_V6
    )
    return "" if ip.is_global and not ip.is_multicast and not is_odd else _PRIVATE


def is_loopback(url: str) -> bool:
    """True if a URL says by its host that it leads to this machine."""
    return _kind_of_host(urlsplit(url).hostname or "") == _LOOPBACK


def is_web_address(url: str) -> bool:
    """True if a URL is one of http or https, of which every reader takes the same for the host.

    A `/`, `?` or `#` that is written plainly in a password ends the host, and shows what stands before.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.fragment


def is_this_machine(host: str) -> bool:
    """True if a host name or an address reaches this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def metadata_places(issuer: str) -> list[str]:
    """Where an issuer publishes its metadata (RFC 8414, OpenID Connect Discovery), in the order to ask."""
    parts = urlsplit(issuer)
    path, root = parts.path.rstrip("/"), f"{parts.scheme}://{parts.netloc}"
    places = (
        f"{root}/.well-known/oauth-authorization-server{path}",
        f"{root}{path}/.well-known/openid-configuration",
        f"{root}/.well-known/openid-configuration{path}",
    )
    return list(dict.fromkeys(places))


def _kind_of_host(host: str) -> str:
    """The same of a host whose kind its text alone says; empty for other names."""
    if host == "localhost" or host.endswith(".localhost"):
        return _LOOPBACK
    try:
        return kind_of(host)
    except ValueError:
        return ""


def _plain(address: str) -> IPv4Address | IPv6Address:
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv4Address):
        return ip
    if int(ip) > 1 and any(ip in network for network in _EMBEDDING):
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1] or ip


def _is_network(rule: str) -> bool:
    try:
        ip_network(rule, strict=False)
    except ValueError:
        return False
    return True
