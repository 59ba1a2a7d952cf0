"""Access tokens of an authorization server: what is read of a valid one, and every way to be invalid."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.extensions.inbound_auth.issuer import AUDIENCE, Issuer, issuing, private_key, public_jwk

from mcp_toolset.auth import JWT
from mcp_toolset.errors import DefinitionError, InvalidTokenError

pytestmark = pytest.mark.anyio

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        found.keys = [public_jwk("k1"), public_jwk("r1", "RSA")]
        yield found


@pytest.fixture
def verifier(issuer: Issuer) -> JWT:
    return JWT(issuer=issuer.url, audience=AUDIENCE, jwks_url=f"{issuer.url}/jwks", roles_claim="realm.roles")


def text(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(issuer: Issuer, header: object, signature: str = "", **claims: Any) -> str:
    payload = {"iss": issuer.url, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 600, **claims}
    return f"{text(header)}.{text(payload)}.{signature}"


async def test_i1_a_valid_token_says_who_calls_with_what(issuer: Issuer, verifier: JWT) -> None:
    token = issuer.token(client_id="app", scope="read write", scp=["more"], realm={"roles": ["admin"]})
    found = await verifier.verify(token)
    assert found is not None
    assert (found.client, found.subject, found.issuer, found.name) == ("app", "ann", issuer.url, "ann")
    assert found.scopes == {"read", "write", "more"}
    assert found.roles == {"admin"}
    assert found.expires is not None and found.expires > time.time() + 600
    assert found.claims["aud"] == AUDIENCE
    assert "aud" not in repr(found)


NOW = int(time.time())
DAY = 86400
"""Longer than any run of the tests, which may come to a test long after it has read this file."""


@pytest.mark.parametrize(
    ("claims", "header"),
    [
        ({"aud": ["https://other", AUDIENCE]}, {}),
        ({"azp": "app", "sub": None}, {}),
        ({"appid": "app"}, {}),
        ({"nbf": int(time.time()) - 5}, {}),
        ({"iat": int(time.time()) + 5}, {}),
        ({"exp": time.time() + DAY + 0.5}, {}),
        ({}, {"typ": "at+jwt"}),
        ({}, {"typ": "application/AT+JWT"}),
        ({}, {"jku": "https://evil.example/jwks", "x5u": "https://evil.example/", "jwk": public_jwk("evil")}),
    ],
)
async def test_i1_what_issuers_write_differently_is_accepted(
    issuer: Issuer, verifier: JWT, claims: dict[str, Any], header: dict[str, Any]
) -> None:
    assert await verifier.verify(issuer.token(header=header, **claims)) is not None
    assert await verifier.verify(issuer.token("r1", "RSA", **claims)) is not None


async def test_i1_a_token_that_has_just_expired_is_accepted(issuer: Issuer, verifier: JWT) -> None:
    assert await verifier.verify(issuer.token(exp=int(time.time()) - 5)) is not None
    assert await verifier.verify(issuer.token("r1", "RSA", exp=int(time.time()) - 5)) is not None


INVALID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "expired": ({"exp": NOW - 600}, {}),
    "no exp": ({"exp": None}, {}),
    "exp is a text": ({"exp": "soon"}, {}),
    "exp is a text of digits": ({"exp": str(NOW + DAY)}, {}),
    "exp is true": ({"exp": True}, {}),
    "exp is NaN": ({"exp": float("nan")}, {}),
    "exp is too large": ({"exp": 10**400}, {}),
    "exp is endless": ({"exp": float("inf")}, {}),
    "not yet valid": ({"nbf": NOW + DAY}, {}),
    "issued in the future": ({"iat": NOW + DAY}, {}),
    "another audience": ({"aud": "https://other.example.com/mcp"}, {}),
    "the audience in capitals": ({"aud": AUDIENCE.upper()}, {}),
    "a longer audience": ({"aud": AUDIENCE + "/"}, {}),
    "no audience": ({"aud": None}, {}),
    "the audience is a number": ({"aud": 5}, {}),
    "an empty audience": ({"aud": []}, {}),
    "nobody": ({"sub": None}, {}),
    "the subject is a number": ({"sub": 5}, {}),
    "a critical extension": ({}, {"crit": ["b64"], "b64": False}),
    "an unknown critical extension": ({}, {"crit": ["wanted"], "wanted": 1}),
    "a logout token": ({}, {"typ": "logout+jwt"}),
    "a security event": ({}, {"typ": "secevent+jwt"}),
    "the type is a number": ({}, {"typ": 5}),
    "an unknown key": ({}, {"kid": "k9"}),
    "the key's id is a path": ({}, {"kid": "../../dev/null"}),
    "the key's id is another key's": ({}, {"kid": "r1"}),
}


@pytest.mark.parametrize("case", INVALID)
async def test_i1_a_token_with_a_flaw_is_refused_and_not_repeated(
    issuer: Issuer, verifier: JWT, case: str
) -> None:
    claims, header = INVALID[case]
    token = issuer.token(header=header, **claims)
    with pytest.raises(InvalidTokenError) as refused:
        await verifier.verify(token)
    assert not any(part and part in str(refused.value) for part in token.split("."))


async def test_i1_forged_signatures_are_refused(issuer: Issuer, verifier: JWT) -> None:
    pem = private_key("r1", "RSA").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, payload, signature = issuer.token().split(".")
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "eve", "exp": NOW + DAY}
    signed = f"{text({'alg': 'HS256', 'kid': 'r1'})}.{text(claims)}"
    confused = f"{signed}.{text(hmac.digest(pem, signed.encode(), 'sha256'))}"
    forged = [
        unsigned(issuer, {"alg": "none"}),
        unsigned(issuer, {"alg": "None"}),
        unsigned(issuer, {"alg": "nOnE", "kid": "k1"}, "x"),
        unsigned(issuer, {"kid": "k1"}, signature),
        unsigned(issuer, {"alg": ["ES256"], "kid": "k1"}, signature),
        unsigned(issuer, {"alg": "ES256", "kid": "k1"}, signature),
        unsigned(issuer, {"alg": "ES256", "kid": "k1"}),
        unsigned(issuer, {"alg": "RS256", "kid": "k1"}, signature),
        unsigned(issuer, {"alg": "PS256", "kid": "r1"}, signature),
        confused,
        jwt.encode(claims, private_key("evil"), "ES256", {"kid": "k1"}),
        f"{header}.{text({**claims, 'sub': 'admin'})}.{signature}",
        f"{header}.{payload}.{signature[:-4]}AAAA",
        f"{header}.{payload}.!!!",
        f"{text([1])}.{payload}.{signature}",
        f"{header}.{text(b'[' * 15000)}.{signature}",
        f"{header}.{text(b'no json')}.{signature}",
        "a.b.c",
        "..",
    ]
    for number, token in enumerate(forged):
        with pytest.raises(InvalidTokenError):
            assert await verifier.verify(token), number


async def test_i1_a_token_of_another_kind_or_issuer_is_left_to_other_verifiers(
    issuer: Issuer, verifier: JWT
) -> None:
    for token in ("opaque", "a.b", "a.b.c.d", issuer.token(iss="https://other.example.com")):
        assert await verifier.verify(token) is None
    assert await verifier.verify(issuer.token(iss=issuer.url + "/")) is None


async def test_i1_a_shared_secret_is_used_only_if_it_is_given() -> None:
    verifier = JWT(issuer="us", audience="tools", secret=SECRET)
    claims = {"iss": "us", "aud": "tools", "client_id": "job", "exp": NOW + DAY}
    found = await verifier.verify(jwt.encode(claims, SECRET))
    assert found is not None and found.name == "job"
    for token in (jwt.encode(claims, SECRET[::-1]), jwt.encode(claims, private_key("k1"), "ES256")):
        with pytest.raises(InvalidTokenError):
            await verifier.verify(token)
    assert SECRET not in repr(verifier)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"algorithms": ["HS256"]}, "HS256 is no algorithm for the keys of an issuer"),
        ({"algorithms": ["none"]}, "none is no algorithm"),
        ({"algorithms": ["RS256"], "secret": SECRET}, "RS256 is no algorithm for a secret"),
        ({"secret": "short"}, "fewer than 32 bytes"),
        ({"audience": ""}, "any token would be valid"),
        ({"audience": []}, "any token would be valid"),
        ({"issuer": "http://idp.example.com"}, "no https URL"),
        ({"jwks_url": "http://idp.example.com/jwks"}, "no https URL"),
        ({"jwks_url": "file:///etc/passwd"}, "no https URL"),
        ({"jwks_url": "http://127.0.0.1.evil.example/jwks"}, "no https URL"),
    ],
)
def test_i1_settings_that_protect_nothing_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        JWT(**{"issuer": "https://idp.example.com", "audience": AUDIENCE, **options})
