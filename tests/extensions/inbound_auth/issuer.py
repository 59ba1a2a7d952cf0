"""An issuer of access tokens: keys made here, and a real HTTP server that publishes them and its metadata."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "https://tools.example.com/mcp"


@cache
def private_key(name: str, kind: str = "EC") -> Any:
    """A private key; each is made once."""
    if kind == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def public_jwk(name: str, kind: str = "EC", **more: Any) -> dict[str, Any]:
    """The public half, as a key set has it."""
    key = private_key(name, kind).public_key()
    algorithm = RSAAlgorithm if kind == "RSA" else ECAlgorithm
    found: Any = algorithm.to_jwk(key)
    return {
        **json.loads(found),
        "kid": name,
        "use": "sig",
        "alg": "RS256" if kind == "RSA" else "ES256",
        **more,
    }


class Issuer:
    """What it publishes may be changed at any time; `asked` has the paths of the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.keys: list[dict[str, Any]] = [public_jwk("k1")]
        self.answers: dict[str, tuple[int, bytes]] = {}

    def token(self, name: str = "k1", kind: str = "EC", header: Any = None, **claims: Any) -> str:
        """A token that is valid, but for what is given; a claim that is `None` is left out."""
        now = int(time.time())
        plain = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600}
        payload = {key: value for key, value in {**plain, **claims}.items() if value is not None}
        algorithm = "RS256" if kind == "RSA" else "ES256"
        headers = {key: value for key, value in {"kid": name, **(header or {})}.items() if value is not None}
        return jwt.encode(payload, private_key(name, kind), algorithm, headers)

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == "/jwks":
            return 200, json.dumps({"keys": self.keys}).encode()
        if path == "/.well-known/openid-configuration":
            return 200, json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}).encode()
        return 404, b"{}"


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer that listens on loopback."""
    issuer = Issuer()

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = issuer.answer(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if status == 302:
                self.send_header("location", f"{issuer.url}/jwks")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
