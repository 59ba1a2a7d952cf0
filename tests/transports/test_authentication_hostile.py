"""A hundred hostile tokens and headers, at every door, in both eras: the right status, nothing in a log."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.extensions.inbound_auth.issuer import AUDIENCE, private_key, public_jwk
from tests.transports.authenticated import (
    ANN,
    BOB,
    JSON,
    MODERN,
    WEAK,
    Headers,
    Served,
    bearer,
    legacy,
    modern,
    serving_with_auth,
)
from tests.transports.test_legacy_sessions import INITIALIZE

pytestmark = pytest.mark.needs("audit")


NOW = int(time.time())


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving_with_auth() as found:
        found.issuer.keys = [public_jwk("k1"), public_jwk("r1", "RSA")]
        yield found


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(served: Served, **more: Any) -> dict[str, Any]:
    plain = {"iss": served.issuer.url, "aud": AUDIENCE, "sub": "ann", "exp": NOW + 86400, "scope": "mcp"}
    return {**plain, **more}


def forged(header: object, signature: str = "", **more: Any) -> Callable[[Served], str]:
    return lambda served: f"{part(header)}.{part(claims(served, **more))}.{signature}"


def signed(name: str = "k1", header: Any = None, **more: Any) -> Callable[[Served], str]:
    return lambda served: served.issuer.token(name, header=header, **{"scope": "mcp", **more})


def confused(served: Served) -> str:
    """Signed with the public key as if it were a secret."""
    pem = private_key("r1", "RSA").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{part({'alg': 'HS256', 'kid': 'r1'})}.{part(claims(served))}"
    return f"{text}.{part(hmac.digest(pem, text.encode(), 'sha256'))}"


def tampered(served: Served) -> str:
    header, _, signature = served.issuer.token(scope="mcp").split(".")
    return f"{header}.{part(claims(served, sub='admin'))}.{signature}"


TOKENS: dict[str, str | Callable[[Served], str]] = {
    "unknown": "someone-0123456789abcdef",
    "a prefix of one": ANN[:-1],
    "longer than one": ANN + "x",
    "in capitals": ANN.upper(),
    "of a letter": "x",
    "opaque with dots": "a.b.c",
    "dots alone": "..",
    "many dots": "." * 500,
    "alg none": forged({"alg": "none", "typ": "JWT"}),
    "alg None": forged({"alg": "None"}),
    "alg NONE with a signature": forged({"alg": "NONE", "kid": "k1"}, "AAAA"),
    "alg is missing": forged({"kid": "k1"}, "AAAA"),
    "alg is empty": forged({"alg": "", "kid": "k1"}, "AAAA"),
    "alg is a list": forged({"alg": ["none"], "kid": "k1"}, "AAAA"),
    "alg is null": forged({"alg": None, "kid": "k1"}, "AAAA"),
    "alg is another of the kind": forged({"alg": "ES384", "kid": "k1"}, "AAAA"),
    "RS256 for an EC key": forged({"alg": "RS256", "kid": "k1"}, "AAAA"),
    "ES256 for an RSA key": forged({"alg": "ES256", "kid": "r1"}, "A" * 86),
    "PS256 for an RS256 key": forged({"alg": "PS256", "kid": "r1"}, "AAAA"),
    "HS256 with the public key": confused,
    "no signature": forged({"alg": "ES256", "kid": "k1"}),
    "a wrong signature": forged({"alg": "ES256", "kid": "k1"}, "A" * 86),
    "a signature that is no base64": forged({"alg": "ES256", "kid": "k1"}, "!!!"),
    "claims that were changed": tampered,
    "of a key of its own in jwk": lambda served: jwt.encode(
        claims(served), private_key("evil"), "ES256", {"kid": "k1", "jwk": public_jwk("evil")}
    ),
    "of a key set of its own in jku": lambda served: jwt.encode(
        claims(served), private_key("evil"), "ES256", {"kid": "evil", "jku": "https://evil.example/jwks"}
    ),
    "of an unknown key": signed(header={"kid": "k9"}),
    "of another key's id": signed(header={"kid": "r1"}),
    "kid is a path": signed(header={"kid": "../../../dev/null"}),
    "kid is a query": signed(header={"kid": "k1' OR '1'='1"}),
    "kid is huge": signed(header={"kid": "k" * 5000}),
    "crit is unknown": signed(header={"crit": ["wanted"], "wanted": True}),
    "payload is not encoded": signed(header={"crit": ["b64"], "b64": False}),
    "a logout token": signed(header={"typ": "logout+jwt"}),
    "a DPoP proof": signed(header={"typ": "dpop+jwt"}),
    "expired": signed(exp=NOW - 3600),
    "expired at the beginning of time": signed(exp=0),
    "expired before time": signed(exp=-1),
    "without exp": signed(exp=None),
    "exp is a word": signed(exp="tomorrow"),
    "exp is a list": signed(exp=[NOW + 86400]),
    "exp is an object": signed(exp={}),
    "exp is NaN": signed(exp=float("nan")),
    "exp is endless": signed(exp=float("inf")),
    "valid tomorrow": signed(nbf=NOW + 86400),
    "issued tomorrow": signed(iat=NOW + 86400),
    "nbf is a word": signed(nbf="yesterday"),
    "for another audience": signed(aud="https://other.example.com/mcp"),
    "for a list of others": signed(aud=["https://other.example.com", "x"]),
    "for the audience in capitals": signed(aud=AUDIENCE.upper()),
    "for a longer audience": signed(aud=AUDIENCE + "/"),
    "for a shorter audience": signed(aud=AUDIENCE[:-1]),
    "without audience": signed(aud=None),
    "for an empty audience": signed(aud=[]),
    "audience is an object": signed(aud={AUDIENCE: 1}),
    "of another issuer": signed(iss="https://idp.example.com"),
    "of the issuer with a slash": lambda served: served.issuer.token(iss=served.issuer.url + "/"),
    "without issuer": signed(iss=None),
    "issuer is a list": lambda served: jwt.api_jws.encode(
        json.dumps(claims(served, iss=[served.issuer.url])).encode(),
        private_key("k1"),
        "ES256",
        {"kid": "k1"},
    ),
    "of nobody": signed(sub=None),
    "of an empty subject": signed(sub=""),
    "subject is a number": signed(sub=5),
    "subject is an object": signed(sub={"name": "ann"}),
    "deep claims": lambda served: f"{part({'alg': 'ES256', 'kid': 'k1'})}.{part(b'[' * 9000)}.AAAA",
    "a deep header": lambda served: f"{part(b'[' * 9000)}.{part(claims(served))}.AAAA",
    "claims are a list": lambda served: f"{part({'alg': 'ES256', 'kid': 'k1'})}.{part([])}.AAAA",
    "claims are no UTF-8": lambda served: (
        f"{part({'alg': 'ES256', 'kid': 'k1'})}.{part(bytes([255, 254]))}.AAAA"
    ),
    "claims are half a text": lambda served: f"{part({'alg': 'ES256'})}.{part(b'{')}.AAAA",
    "five parts": lambda served: f"{part({'alg': 'dir', 'enc': 'A256GCM'})}.a.b.c.d",
    "padded": lambda served: served.issuer.token(scope="mcp") + "==",
    "twice in one": lambda served: served.issuer.token() + "." + served.issuer.token(),
}
"""Each is refused with 401 and `invalid_token`."""


@dataclass
class Wrong:
    """Headers, and a query, that are wrong in themselves."""

    status: int
    error: str | None
    headers: Headers = ()
    query: str = ""


WRONG: dict[str, Wrong] = {
    "nothing": Wrong(401, None),
    "another scheme": Wrong(401, None, [("authorization", "Basic YW5uOnNlY3JldA==")]),
    "the token without a scheme": Wrong(401, None, [("authorization", ANN)]),
    "a scheme that begins so": Wrong(401, None, [("authorization", f"BearerX {ANN}")]),
    "DPoP": Wrong(401, None, [("authorization", f"DPoP {ANN}")]),
    "in another header": Wrong(401, None, [("x-api-key", ANN), ("proxy-authorization", f"Bearer {ANN}")]),
    "in a cookie": Wrong(401, None, [("cookie", f"access_token={ANN}")]),
    "an empty header": Wrong(401, None, [("authorization", "")]),
    "no token": Wrong(400, "invalid_request", [("authorization", "Bearer")]),
    "two spaces": Wrong(400, "invalid_request", [("authorization", f"Bearer  {ANN}")]),
    "two tokens": Wrong(400, "invalid_request", [("authorization", f"Bearer {ANN} {BOB}")]),
    "two headers in one": Wrong(400, "invalid_request", [("authorization", f"Bearer {ANN}, Bearer {BOB}")]),
    "a list of tokens": Wrong(400, "invalid_request", [("authorization", f"Bearer {ANN},{BOB}")]),
    "not in ASCII": Wrong(400, "invalid_request", [("authorization", f"Bearer {ANN}é")]),
    "huge": Wrong(400, "invalid_request", [("authorization", "Bearer " + "x" * 20_000)]),
    "two headers": Wrong(400, "invalid_request", [bearer(ANN), bearer(BOB)]),
    "two equal headers": Wrong(400, "invalid_request", [bearer(ANN), bearer(ANN)]),
    "a good one after a bad one": Wrong(400, "invalid_request", [bearer("wrong"), bearer(ANN)]),
    "two in mixed case": Wrong(400, "invalid_request", [bearer(ANN), ("AUTHORIZATION", f"bearer {BOB}")]),
    "in the query": Wrong(400, "invalid_request", [], f"access_token={ANN}"),
    "in the query, encoded": Wrong(400, "invalid_request", [], f"access%5Ftoken={ANN}"),
    "in the query, in capitals": Wrong(400, "invalid_request", [], f"ACCESS_TOKEN={ANN}"),
    "in the query and in the header": Wrong(400, "invalid_request", [bearer(ANN)], f"access_token={ANN}"),
    "in the query after others": Wrong(400, "invalid_request", [bearer(ANN)], "a=1&b&access_token="),
    "without the scope": Wrong(403, "insufficient_scope", [bearer(WEAK)]),
}


@dataclass
class Door:
    """Where a request may come in."""

    method: str
    path: str
    headers: Headers
    message: Any = None


def doors(served: Served) -> dict[str, Door]:
    session = served.session(ANN)
    _, posts = served.events(ANN)
    modern_headers, plain = [*MODERN.items(), ("mcp-name", "whoami")], [*JSON.items()]
    modern_headers = [(name, value) for name, value in modern_headers if (name, value) != ("mcp-name", "add")]
    return {
        "modern": Door("POST", "/mcp", modern_headers, modern()),
        "handshake": Door("POST", "/mcp", plain, INITIALIZE),
        "legacy call": Door("POST", "/mcp", session, legacy()),
        "legacy stream": Door("GET", "/mcp", session),
        "legacy end": Door("DELETE", "/mcp", session),
        "sse": Door("GET", "/sse", plain),
        "sse, spelt otherwise": Door("GET", "/sse%0A", plain),
        "sse post": Door("POST", posts, plain, INITIALIZE),
        "sse post, below": Door("POST", posts.replace("/messages/", "/messages/x"), plain, INITIALIZE),
    }


def sent(served: Served, door: Door, headers: Headers, query: str = "") -> Any:
    path = door.path + ("" if not query else ("&" if "?" in door.path else "?") + query)
    return served.asked(door.method, path, [*door.headers, *headers], door.message)


def test_f32_hostile_tokens_are_refused_at_every_door_and_none_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    logging.getLogger("uvicorn.error").setLevel(0)
    tokens = {name: made if isinstance(made, str) else made(served) for name, made in TOKENS.items()}
    found = {
        (door, name): sent(served, where, [bearer(token)])
        for door, where in doors(served).items()
        for name, token in tokens.items()
    }
    assert {key: one.status for key, one in found.items() if one.status != 401} == {}
    without = [
        key for key, one in found.items() if 'error="invalid_token"' not in one.headers["www-authenticate"]
    ]
    assert without == []
    for name, token in tokens.items():
        pieces = [piece for piece in (token, *token.split(".")) if len(piece) > 7]
        assert not [piece for piece in pieces if piece in caplog.text], name
        assert not [
            one for (_, of), one in found.items() if of == name and any(p in one.said for p in pieces)
        ]


def test_f32_hostile_headers_are_refused_at_every_door_with_the_status_they_deserve(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    for door, where in doors(served).items():
        for name, wrong in WRONG.items():
            found = sent(served, where, wrong.headers, wrong.query)
            challenge = found.headers["www-authenticate"]
            assert (found.status, door, name) == (wrong.status, door, name)
            assert (f'error="{wrong.error}"' in challenge) is (wrong.error is not None), (door, name)
            assert ("error=" in challenge) is (wrong.error is not None), (door, name)
            assert ANN not in found.said and BOB not in found.said
    assert ANN not in caplog.text and BOB not in caplog.text and WEAK not in caplog.text


def test_f30_the_session_of_another_caller_is_not_found(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    session, (stream, posts) = served.session(ANN), served.events(ANN)
    session_id = dict(session)["mcp-session-id"]
    for method, message in (("POST", legacy()), ("GET", None), ("DELETE", None)):
        found = served.asked(method, "/mcp", [*session, bearer(BOB)], message)
        assert (found.status, method) == (404, method)
        jwt_of_ann = served.issuer.token(scope="mcp")
        assert served.asked(method, "/mcp", [*session, bearer(jwt_of_ann)], message).status == 404
    assert served.asked("POST", posts, [*JSON.items(), bearer(BOB)], INITIALIZE).status == 404
    assert served.asked("POST", "/mcp", [*session, bearer(ANN)], legacy()).status == 200
    assert served.asked("POST", posts, [*JSON.items(), bearer(ANN)], INITIALIZE).status == 202
    assert session_id not in caplog.text
    stream.close()
