"""The keys of an issuer: when they are fetched, what is taken of them, and what happens when they change."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anyio
import pytest
from tests.extensions.inbound_auth.issuer import AUDIENCE, Issuer, issuing, public_jwk

from mcp_toolset.auth import JWT
from mcp_toolset.errors import InvalidTokenError, TokenCheckError
from mcp_toolset.extensions.inbound_auth.verifiers.jwt import COOLDOWN, LIFESPAN, KeySet, fetched

pytestmark = pytest.mark.anyio


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def verifier(issuer: Issuer, clock: Clock | None = None, url: str | None = "/jwks") -> JWT:
    address = None if url is None else issuer.url + url
    keys = KeySet(issuer.url, address, clock=clock or Clock())
    return JWT(issuer=issuer.url, audience=AUDIENCE, keys=keys)


async def test_i1_keys_are_fetched_once_for_all_tokens(issuer: Issuer) -> None:
    jwt = verifier(issuer)

    async def verify() -> None:
        assert await jwt.verify(issuer.token())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(verify)
    assert issuer.asked == ["/jwks"]


@pytest.mark.parametrize(
    "place", ["/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"]
)
async def test_i1_the_issuers_metadata_says_where_the_keys_are(issuer: Issuer, place: str) -> None:
    told = json.dumps({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"}).encode()
    issuer.answers = {"/.well-known/openid-configuration": (404, b""), place: (200, told)}
    assert await verifier(issuer, url=None).verify(issuer.token())
    assert issuer.asked[-1] == "/jwks"


@pytest.mark.parametrize(
    "told",
    [
        {"issuer": "https://other.example.com", "jwks_uri": "https://127.0.0.1/jwks"},
        {"issuer": "{}", "jwks_uri": "http://elsewhere.example.com/jwks"},
        {"issuer": "{}"},
        {"issuer": "{}", "jwks_uri": 5},
    ],
)
async def test_i1_metadata_of_another_issuer_or_an_unsafe_url_is_not_used(
    issuer: Issuer, told: dict[str, object]
) -> None:
    filled = {
        key: value.format(issuer.url) if isinstance(value, str) else value for key, value in told.items()
    }
    issuer.answers["/.well-known/openid-configuration"] = 200, json.dumps(filled).encode()
    with pytest.raises(TokenCheckError):
        await verifier(issuer, url=None).verify(issuer.token())
    assert "/jwks" not in issuer.asked


async def test_i1_a_new_key_is_fetched_when_a_token_names_it(issuer: Issuer) -> None:
    clock = Clock()
    jwt = verifier(issuer, clock)
    assert await jwt.verify(issuer.token())
    issuer.keys.append(public_jwk("k2"))
    with pytest.raises(InvalidTokenError):
        await jwt.verify(issuer.token("k2"))
    clock.now += COOLDOWN
    assert await jwt.verify(issuer.token("k2"))
    assert len(issuer.asked) == 2


async def test_i1_tokens_with_unknown_keys_do_not_drive_fetches(issuer: Issuer) -> None:
    clock = Clock()
    jwt = verifier(issuer, clock)
    for number in range(50):
        with pytest.raises(InvalidTokenError):
            await jwt.verify(issuer.token(header={"kid": f"evil-{number}"}))
    assert len(issuer.asked) == 1
    clock.now += COOLDOWN
    for number in range(50):
        with pytest.raises(InvalidTokenError):
            await jwt.verify(issuer.token(header={"kid": f"evil-{number}"}))
    assert len(issuer.asked) == 2


async def test_i1_a_withdrawn_key_is_noticed_and_told(issuer: Issuer) -> None:
    clock, told = Clock(), list[str]()
    jwt = verifier(issuer, clock)
    jwt.on_withdrawal(lambda: told.append("withdrawn"))
    assert await jwt.verify(issuer.token())
    issuer.keys.append(public_jwk("k2"))
    clock.now += LIFESPAN + 1
    assert await jwt.verify(issuer.token())
    assert not told
    issuer.keys = [public_jwk("k2")]
    clock.now += LIFESPAN + 1
    with pytest.raises(InvalidTokenError):
        await jwt.verify(issuer.token())
    assert told == ["withdrawn"]


async def test_i1_known_keys_stay_in_use_while_the_issuer_is_down(issuer: Issuer) -> None:
    clock = Clock()
    jwt = verifier(issuer, clock)
    assert await jwt.verify(issuer.token())
    issuer.answers["/jwks"] = 500, b""
    clock.now += LIFESPAN + 1
    assert await jwt.verify(issuer.token())
    with pytest.raises(InvalidTokenError):
        await jwt.verify(issuer.token("k2"))
    assert len(issuer.asked) == 2


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (500, b"", "status 500"),
        (302, b"", "status 302"),
        (200, b"[" * 100_000, "JSONDecodeError|RecursionError"),
        (200, b"no json", "JSONDecodeError"),
        (200, b"[]", "something else than a JSON object"),
        (200, b" " * 300_000, "more than 262144 bytes"),
    ],
)
async def test_i1_an_answer_without_keys_is_an_error_that_says_why(
    issuer: Issuer, status: int, body: bytes, told: str
) -> None:
    issuer.answers["/jwks"] = status, body
    with pytest.raises(TokenCheckError, match=told):
        await verifier(issuer).verify(issuer.token())
    with pytest.raises(TokenCheckError):
        await verifier(issuer).verify(issuer.token())


async def test_i1_an_issuer_that_does_not_answer_is_waited_for_with_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.inbound_auth.verifiers.jwt._TIMEOUT", 0.05)

    async def never(url: str) -> dict[str, object]:
        await anyio.sleep_forever()
        return {}

    keys = KeySet("https://idp.example.com", "https://idp.example.com/jwks", fetch=never)
    with anyio.fail_after(60), pytest.raises(TokenCheckError, match="no answer in time"):
        await keys.key("k1")


async def test_i1_a_server_that_is_not_there_is_an_error_without_a_traceback() -> None:
    with pytest.raises(TokenCheckError, match="ConnectError"):
        await fetched("http://127.0.0.1:9/jwks")


async def test_i1_secrets_and_odd_entries_in_a_key_set_are_left_out(issuer: Issuer) -> None:
    secret = {"kty": "oct", "kid": "k1", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}
    odd = [5, "key", None, secret, {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"}, {"kty": "XX"}]
    odd.append(public_jwk("none", alg="none"))
    issuer.keys = [*odd, public_jwk("enc", use="enc"), public_jwk("k2")]
    jwt = verifier(issuer)
    assert await jwt.verify(issuer.token("k2"))
    for name in ("k1", "enc", "broken", "none"):
        with pytest.raises(InvalidTokenError):
            await jwt.verify(issuer.token(name))


async def test_i1_a_token_without_a_key_id_needs_an_issuer_with_one_key(issuer: Issuer) -> None:
    token = issuer.token(header={"kid": None})
    issuer.keys = [public_jwk("k1", kid="")]
    assert await verifier(issuer).verify(token)
    issuer.keys = [public_jwk("k1"), public_jwk("k2")]
    with pytest.raises(InvalidTokenError):
        await verifier(issuer).verify(token)
