"""What a mounted server names for logins leads to no request into the bridge's own network."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.extensions.upstream_access.credentials.odd_endpoint import OddEndpoint, odd_endpoint

from mcp_toolset import RemoteToolset, ToolsetServer
from mcp_toolset.auth import ClientCredentials, OAuth
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError, DefinitionError, UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.account import Account
from mcp_toolset.extensions.upstream_access.token_source import authorization_http
from mcp_toolset.security.credential_store import MemoryCredentialStore
from mcp_toolset.security.egress import Egress, kind_of
from mcp_toolset.transports.guarded import permitted

pytestmark = pytest.mark.anyio


class Page:
    redirect_uri = "http://127.0.0.1:9/callback"

    def __init__(self) -> None:
        self.visited: list[str] = []

    async def visit(self, url: str) -> str:
        self.visited.append(url)
        raise UpstreamUnavailableError("odd", "the person leaves")


class Names:
    """Host names of a test and their addresses, each time they are asked for; counts by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **addresses: list[str]) -> None:
        self.asked: list[str] = []
        known = {name.replace("_", "."): list(found) for name, found in addresses.items()}
        real = socket.getaddrinfo

        def answered(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host
            if name not in known:
                return real(host, port, *args, **kwargs)
            self.asked.append(name)
            found = known[name]
            address = found.pop(0) if len(found) > 1 else found[0]
            return real(address, port, *args, **kwargs)

        monkeypatch.setattr(socket, "getaddrinfo", answered)


async def tried(mount: RemoteToolset) -> str:
    server = ToolsetServer(mount, list_timeout=30, keep=False)
    with anyio.fail_after(30):
        async with server:
            await server.settled()
            status = server.statuses()["odd"]
            if status.state == "ready":
                return (await server.call_as_host("say")).text
            return status.reason


def remote(up: OddEndpoint) -> str:
    """The address of the server by a name of the internet."""
    up.host = "mcp.example"
    return f"{up.public}/mcp"


@pytest.mark.parametrize("place", ["resource metadata", "authorization server", "token", "registration"])
async def test_u79_a_server_elsewhere_sends_the_bridge_to_no_address_of_this_machine(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Names(monkeypatch, mcp_example=["127.0.0.1"])
    with odd_endpoint() as up, odd_endpoint() as inner:
        up.host = "mcp.example"
        if place == "resource metadata":
            up.resource_metadata = f"{inner.base}/.well-known/oauth-protected-resource"
        elif place == "authorization server":
            up.authorization_server = inner.base
        else:
            up.metadata[f"{place}_endpoint"] = f"{inner.base}/{place}"
        auth: Any = ClientCredentials(client_id="c", client_secret="s", issuer=up.public)
        if place in ("registration", "authorization server", "resource metadata"):
            auth = OAuth(page=Page(), store=MemoryCredentialStore())
        mount = RemoteToolset(remote(up), name="odd", auth=auth, egress=["mcp.example"])
        reason = await tried(mount)
        assert inner.received == []
        assert "127.0.0.1 is at 127.0.0.1, a loopback address" in reason and "`egress`" in reason
        mount = RemoteToolset(remote(up), name="odd", auth=auth, egress=["mcp.example", "127.0.0.0/8"])
        await tried(mount)
        assert inner.received, "the rule is what has stopped it"


async def test_u79_the_login_command_sends_nothing_to_this_machine_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Names(monkeypatch, mcp_example=["127.0.0.1"])
    with odd_endpoint() as up, odd_endpoint() as inner:
        up.resource_metadata = f"{inner.base}/x"
        auth = OAuth(store=MemoryCredentialStore(), egress=Egress(("mcp.example",)))
        with pytest.raises(UpstreamUnavailableError, match="loopback"):
            await Account("odd", remote(up), auth).login(Page(), ())
        assert inner.received == []


async def test_u79_nobody_is_sent_to_a_login_page_of_this_machine_or_without_https(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Names(monkeypatch, mcp_example=["127.0.0.1"], public_example=["1.1.1.1"])
    for address, why in (("http://127.0.0.1:9/a", "loopback"), ("http://public.example/a", "no https")):
        page = Page()
        with odd_endpoint() as up:
            up.host = "mcp.example"
            up.metadata = {"authorization_endpoint": address}
            registered = {"client_id": "c", "redirect_uris": [page.redirect_uri]}
            up.answer("/registration_endpoint", registered, status=201)
            auth = OAuth(page=page, store=MemoryCredentialStore())
            reason = await tried(RemoteToolset(remote(up), name="odd", auth=auth, egress=["mcp.example"]))
        assert page.visited == [] and why in reason, reason


async def test_u79_a_name_that_leads_elsewhere_once_it_was_judged_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch, mcp_example=["127.0.0.1"], rebound_example=["1.1.1.1", "127.0.0.1"])
    connected: list[str] = []

    async def noted(self: Any, request: httpx2.Request) -> httpx2.Response:
        connected.append(f"{request.url.host} {request.headers['host']} {request.extensions['sni_hostname']}")
        raise httpx2.ConnectError("nothing is there")

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", noted)
    auth = ClientCredentials(client_id="c", client_secret="s", issuer="https://rebound.example")
    async with authorization_http("odd", "https://mcp.example/mcp", auth) as http:
        with pytest.raises(UpstreamUnavailableError, match="nothing is there"):
            await http.send(httpx2.Request("GET", "https://rebound.example/x"))
        assert connected == ["1.1.1.1 rebound.example rebound.example"]
        with pytest.raises(UpstreamUnavailableError, match="loopback"):
            await http.send(httpx2.Request("GET", "https://rebound.example/x"))
    assert len(connected) == 1 and names.asked == ["rebound.example"] * 2


@pytest.mark.parametrize("auth", [None, httpx2.Auth()])
async def test_u79_the_name_of_a_server_elsewhere_leads_to_no_address_of_this_machine(
    auth: httpx2.Auth | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Names(monkeypatch, mcp_example=["127.0.0.1"])
    with odd_endpoint() as up:
        up.token = "t"
        head = {"Authorization": "Bearer t"}
        assert "loopback" in await tried(RemoteToolset(remote(up), name="odd", headers=head, auth=auth))
        assert up.received == []
        mount = RemoteToolset(remote(up), name="odd", headers=head, auth=auth, egress=["*.example"])
        assert await tried(mount) == "said"


IDLE = "http://127.0.0.1:1"
"""A proxy at which nothing listens."""

DIRECT: list[dict[str, str]] = [
    {"MY_PROXY": "1"},
    {"FTP_PROXY": IDLE},
    {"HTTP_PROXY": IDLE, "NO_PROXY": ".example"},
    {"ALL_PROXY": IDLE, "NO_PROXY": "*"},
]


def set_proxies(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("environment", DIRECT, ids=str)
async def test_u79_no_variable_of_the_environment_lets_a_direct_request_through(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxies(monkeypatch, environment)
    names = Names(monkeypatch, mcp_example=["127.0.0.1"], rebound_example=["1.1.1.1", "127.0.0.1"])
    with odd_endpoint() as up:
        head = {"Authorization": "Bearer t"}
        for auth in (None, httpx2.Auth()):
            assert "loopback" in await tried(RemoteToolset(remote(up), name="odd", headers=head, auth=auth))
        login = ClientCredentials(client_id="c", client_secret="s", issuer="https://rebound.example")
        async with authorization_http("odd", "https://mcp.example/mcp", login) as http:
            there = up.base.replace("http://127.0.0.1", "https://rebound.example")
            with pytest.raises(UpstreamUnavailableError, match="loopback"):
                await http.send(httpx2.Request("GET", there))
        assert up.received == [] and "rebound.example" in names.asked


async def test_u79_a_proxy_carries_what_is_meant_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, mcp_example=["1.1.1.1"])
    with odd_endpoint() as proxy:
        set_proxies(monkeypatch, {"HTTP_PROXY": proxy.base, "NO_PROXY": "other.example"})
        head = {"Authorization": "Bearer t"}
        for auth in (None, httpx2.Auth()):
            await tried(RemoteToolset("http://mcp.example/mcp", name="odd", headers=head, auth=auth))
            assert any("http://mcp.example/mcp" in each for each in proxy.received)
            proxy.received.clear()


async def test_u79_a_server_on_loopback_logs_in_on_loopback() -> None:
    with odd_endpoint() as up, odd_endpoint() as idp:
        up.token, up.authorization_server = "t", idp.base
        idp.answer("/token_endpoint", {"access_token": "t", "token_type": "Bearer"})
        auth = ClientCredentials(client_id="c", client_secret="s", issuer=idp.base)
        assert await tried(RemoteToolset(f"{up.base}/mcp", name="odd", auth=auth)) == "said"


FAR, HERE, INTRANET = "https://mcp.example/mcp", "http://127.0.0.1:8/mcp", "https://10.0.0.5/mcp"
RULES: list[tuple[str, str, str, tuple[str, ...], bool]] = [
    ("https://a.example/x", "93.184.216.34", FAR, (), True),
    ("https://a.example/x", "10.1.2.3", FAR, (), False),
    ("https://a.example/x", "10.1.2.3", INTRANET, (), True),
    ("https://a.example/x", "10.1.2.3", HERE, (), True),
    ("https://a.example/x", "127.0.0.1", INTRANET, (), False),
    ("https://a.example/x", "127.0.0.1", HERE, (), True),
    ("https://a.example/x", "169.254.169.254", HERE, (), False),
    ("https://a.example/x", "::ffff:127.0.0.1", FAR, (), False),
    ("https://a.example/x", "64:ff9b::7f00:1", FAR, (), False),
    ("https://a.example/x", "0.0.0.0", FAR, (), False),
    ("https://a.example/x", "fe80::1%eth0", FAR, (), False),
    ("https://a.example/x", "100.64.0.1", FAR, (), False),
    ("https://mcp.example/x", "10.1.2.3", FAR, (), True),
    ("http://mcp.example:81/x", "10.1.2.3", FAR, (), False),
    ("https://mcp.example/x", "127.0.0.1", FAR, (), False),
    ("https://login.corp/x", "10.1.2.3", FAR, ("login.corp",), True),
    ("https://login.corp/x", "10.1.2.3", FAR, ("*.corp",), True),
    ("https://login.corp/x", "10.1.2.3", FAR, ("corp",), False),
    ("https://login.corp/x", "10.1.2.3", FAR, ("10.0.0.0/8",), True),
    ("https://login.corp/x", "::ffff:10.1.2.3", FAR, ("10.0.0.0/8",), True),
]


@pytest.mark.parametrize(("url", "address", "own", "allow", "goes"), RULES)
def test_u79_what_decides_about_an_address(
    url: str, address: str, own: str, allow: tuple[str, ...], goes: bool
) -> None:
    assert (Egress(allow).refusal(url, address, own) == "") is goes


@pytest.mark.parametrize(
    "address",
    [
        "::127.0.0.1",
        "::10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::a00:1",
        "fec0::1",
        "192.0.0.192",
        "5f00::1",
    ],
)
def test_u79_an_address_of_another_form_is_no_public_one(address: str) -> None:
    assert kind_of(address)
    assert Egress().refusal("https://odd.example/", address, FAR)


def test_u79_a_rule_for_all_hosts_below_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError):
        Egress(("*.",))


def test_u79_an_issuer_of_the_entry_may_be_private_but_opens_no_other_host() -> None:
    issuer = "https://login.corp"
    assert Egress().refusal("https://login.corp/token", "10.1.2.3", FAR, issuer) == ""
    assert Egress().refusal("https://other.corp/token", "10.1.2.3", FAR, issuer)
    local = "http://localhost:9000"
    assert Egress().refusal("http://localhost:9000/token", "127.0.0.1", FAR, local) == ""
    assert Egress().refusal("http://localhost:9001/token", "127.0.0.1", FAR, local)
    assert kind_of("8.8.8.8") == ""


def test_u79_the_rule_of_a_configuration_reaches_its_servers_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"

    def written(allow: list[str]) -> Path:
        table: dict[str, Any] = {"toolset": {"egress": {"allow": allow}}}
        table["mcpServers"] = {"a": {"url": FAR, "auth": "oauth"}}
        file.write_text(json.dumps(table))
        return file

    (server,) = load_config(written(["*.corp", "10.0.0.0/8"])).servers
    assert isinstance(server.extensions["access"].auth, OAuth)
    assert server.egress == ("*.corp", "10.0.0.0/8")
    with pytest.raises(ConfigError, match="egress.*https://a.*no host and no network"):
        load_config(written(["https://a"]))
    with pytest.raises(DefinitionError, match="no host"):
        RemoteToolset(FAR, name="a", egress=["a b"])


async def test_u79_the_requests_of_a_login_flow_of_the_program_are_judged_too() -> None:
    class Flow(httpx2.Auth):
        """Asks a server on this machine for a token, because it was told to."""

        def __init__(self, url: str) -> None:
            self.url = url

        async def async_auth_flow(self, request: httpx2.Request) -> Any:
            yield httpx2.Request("GET", self.url)
            yield request

    with odd_endpoint() as inner:
        auth = Flow(f"{inner.base}/metadata")
        reason = await tried(
            RemoteToolset("https://mcp.example/mcp", name="odd", auth=auth, start_timeout=10)
        )
        assert "127.0.0.1 is at 127.0.0.1, a loopback address" in reason
        assert inner.received == []


@pytest.mark.parametrize(
    ("address", "own", "allow"),
    [
        ("0.0.0.0", INTRANET, ()),
        ("::", INTRANET, ()),
        ("2002:a01:203::1", FAR, ()),
        ("2002:7f00:1::1", INTRANET, ()),
        ("10.1.2.3", FAR, ("*.vilcorp", "*.login.evilcorp")),
    ],
)
def test_u115_no_spelling_of_an_address_or_of_a_host_leads_into_the_network(
    address: str, own: str, allow: tuple[str, ...]
) -> None:
    assert Egress(allow).refusal("https://login.evilcorp/x", address, own)


async def test_u115_of_the_addresses_of_a_host_only_those_that_may_be_reached_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def both(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", (address, 443)) for address in ("10.1.2.3", "93.184.216.34")]

    monkeypatch.setattr(anyio, "getaddrinfo", both)

    def refusal(url: str, address: str) -> str:
        return Egress().refusal(url, address, FAR)

    assert await permitted(refusal, "https://a.example/x") == ["93.184.216.34"]
