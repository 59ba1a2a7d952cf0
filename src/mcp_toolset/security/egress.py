"""`Egress`: the limits for requests to addresses that a mounted server has named.

A remote server must not have the bridge send requests into the bridge's own network. Each address of a host
is checked after its name was resolved, right before the connection.
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
"""The reason to refuse a request: of its URL and of an IP address of the host; empty to allow it."""

_LOOPBACK: Final = "a loopback address"
_LINK_LOCAL: Final = "a link-local address"
_PRIVATE: Final = "a private address"
_EMBEDDING: Final = tuple(map(ip_network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""IPv6 networks whose addresses end with the IPv4 address that they lead to."""

_HOST: Final = re.compile(r"(?:\*\.)?(?:[\w-]+\.)*(?!\d+\.?$)(?!-)[\w-]+\.?")
"""A host, or all hosts below a domain; a host whose last part is a number would be an address."""

_PUBLIC_V6: Final = ip_network("2000::/3")
_SPECIAL: Final = tuple(map(ip_network, ("192.0.0.0/24", "3fff::/20")))
"""Networks that older Pythons take for public; one of them has the metadata service of a cloud."""

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
        """The reason to refuse a request to `url` at `address`; empty if the request is allowed.

        Loopback and link-local addresses are allowed to servers with such an address. Private addresses are
        allowed to servers at a loopback or private address, and for hosts in the entry of the server.

        Args:
            url: The URL of the request.
            address: An IP address of its host.
            own: The configured address of the mounted server.
            named: Other addresses in the entry of the server, such as an issuer.
        """
        kind, target = kind_of(address), urlsplit(url)
        own_kind = _kind_of_host(urlsplit(own).hostname or "")
        host = target.hostname or ""
        is_alike = kind in ("", own_kind) or (kind == _PRIVATE and own_kind == _LOOPBACK)
        if is_alike or self._allows(host, address):
            return ""
        for configured in map(urlsplit, (own, *named)):
            # Without TLS another host could answer under the name for a moment (DNS rebinding).
            is_same = target.scheme == "https" or configured.netloc == target.netloc
            if configured.hostname == host and is_same and kind in (_PRIVATE, _kind_of_host(host)):
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
    """The kind of an IP address, in words; empty for a public one."""
    ip = _plain(address)
    if ip.is_loopback or ip.is_unspecified:
        return _LOOPBACK
    if ip.is_link_local:
        return _LINK_LOCAL
    is_special = any(ip in network for network in _SPECIAL) or (
        isinstance(ip, IPv6Address) and ip not in _PUBLIC_V6
    )
    return "" if ip.is_global and not ip.is_multicast and not is_special else _PRIVATE


def is_loopback(url: str) -> bool:
    """True if the host of a URL is a loopback address or `localhost`."""
    return _kind_of_host(urlsplit(url).hostname or "") == _LOOPBACK


def is_web_address(url: str) -> bool:
    """True if a URL is one of http or https, and has one meaning.

    A plain `/`, `?` or `#` in a password would end the host, so that the password appears in messages.
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


def metadata_addresses(issuer: str) -> list[str]:
    """The addresses of an issuer's metadata (RFC 8414, OpenID Connect Discovery), in the order to try."""
    parts = urlsplit(issuer)
    path, root = parts.path.rstrip("/"), f"{parts.scheme}://{parts.netloc}"
    addresses = (
        f"{root}/.well-known/oauth-authorization-server{path}",
        f"{root}{path}/.well-known/openid-configuration",
        f"{root}/.well-known/openid-configuration{path}",
    )
    return list(dict.fromkeys(addresses))


def _kind_of_host(host: str) -> str:
    """The kind of a host that is `localhost` or an IP address; empty for other names."""
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
