"""From credentials to an identity: what is remembered, for how long, and what is forgotten when."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from mcp.server.auth.provider import AccessToken

from mcp_toolset import Identity
from mcp_toolset.auth import Authenticator, StaticToken, StaticTokens
from mcp_toolset.errors import DefinitionError, InvalidTokenError, TokenCheckError
from mcp_toolset.security.authenticator import MEMORY, Refusal

pytestmark = [pytest.mark.anyio, pytest.mark.needs("inbound_auth")]

CI, ANN = "ci-0123456789abcdef", "ann-0123456789abcdef"


@dataclass
class Clock:
    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now


@dataclass
class Watched:
    """A verifier of an application, which counts what it is asked."""

    tokens: dict[str, Identity | Exception] = field(default_factory=dict[str, Identity | Exception])
    asked: list[str] = field(default_factory=list[str])
    gate: anyio.Event | None = None

    async def verify(self, token: str) -> Identity | None:
        self.asked.append(token)
        if self.gate is not None:
            await self.gate.wait()
        found = self.tokens.get(token)
        if isinstance(found, Exception):
            raise found
        return found


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def status(found: Identity | Refusal) -> int:
    return found.status if isinstance(found, Refusal) else 200


async def test_i1_a_verified_token_is_remembered_until_it_expires() -> None:
    clock = Clock()
    verifier = Watched({"t": Identity.of("app", "ann", expires=clock.now + 60)})
    auth = Authenticator(verifier, clock=clock)
    first = await auth.identify(bearer("t"))
    assert await auth.identify(bearer("t")) is first
    assert verifier.asked == ["t"]
    clock.now += 60
    assert status(await auth.identify(bearer("t"))) == 401
    assert verifier.asked == ["t", "t"]


async def test_u115_a_token_that_is_forgotten_while_it_is_verified_is_not_remembered() -> None:
    gate = anyio.Event()
    verifier = Watched({"t": Identity.of("app", "ann")}, gate=gate)
    auth = Authenticator(verifier)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(auth.identify, bearer("t"))
            await anyio.wait_all_tasks_blocked()
            auth.forget("ann")
            gate.set()
    assert auth.recall(bearer("t")) is None
    verifier.tokens.clear()
    assert status(await auth.identify(bearer("t"))) == 401


async def test_i1_an_applications_verifier_is_asked_again_after_some_minutes() -> None:
    clock, verifier = Clock(), Watched({"t": Identity.of("app")})
    auth = Authenticator(verifier, clock=clock)
    await auth.identify(bearer("t"))
    del verifier.tokens["t"]
    assert status(await auth.identify(bearer("t"))) == 200
    clock.now += MEMORY
    assert status(await auth.identify(bearer("t"))) == 401


async def test_i1_one_verification_of_a_token_is_under_way_at_a_time() -> None:
    verifier = Watched({"t": Identity.of("app")}, gate=anyio.Event())
    auth, found = Authenticator(verifier), list[Any]()

    async def identify() -> None:
        found.append(await auth.identify(bearer("t")))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(identify)
            await anyio.wait_all_tasks_blocked()
            assert verifier.gate is not None
            verifier.gate.set()
    assert verifier.asked == ["t"]
    assert len({id(one) for one in found}) == 1


async def test_i1_if_the_request_that_verifies_a_token_is_cancelled_another_one_verifies_it() -> None:
    verifier = Watched({"t": Identity.of("app")}, gate=anyio.Event())
    auth, first, found = Authenticator(verifier), anyio.CancelScope(), list[Identity | Refusal]()

    async def early() -> None:
        with first:
            await auth.identify(bearer("t"))

    async def late() -> None:
        found.append(await auth.identify(bearer("t")))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(early)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(late)
            await anyio.wait_all_tasks_blocked()
            first.cancel()
            assert verifier.gate is not None
            verifier.gate.set()
    assert ([status(one) for one in found if one], verifier.asked) == ([200], ["t", "t"])


@pytest.mark.parametrize("who", ["the token", "the name", "the key", "the identity"])
async def test_i1_a_revoked_token_is_refused_at_once_by_whatever_it_is_named(who: str) -> None:
    ann = Identity.of("app", "ann", claims={"iat": time.time() - 5})
    verifier = Watched({"t": ann, "other": Identity.of("app", "bob")})
    auth = Authenticator(verifier)
    await auth.identify(bearer("t"))
    auth.revoke({"the token": "t", "the name": "ann", "the key": ann.key, "the identity": ann}[who])
    refused = await auth.identify(bearer("t"))
    assert isinstance(refused, Refusal) and (refused.status, refused.error) == (401, "invalid_token")
    assert status(await auth.identify(bearer("other"))) == 200
    verifier.tokens["new"] = Identity.of("app", "ann", claims={"iat": time.time() + 5})
    assert status(await auth.identify(bearer("new"))) == 200


async def test_i1_another_spelling_of_a_revoked_jwt_is_refused_too() -> None:
    """A signature of ECDSA has a twin that is valid as well."""
    verifier = Watched({"a.b.c": Identity.of("app"), "a.b.d": Identity.of("app")})
    auth = Authenticator(verifier)
    auth.revoke("a.b.c")
    assert status(await auth.identify(bearer("a.b.d"))) == 401


async def test_i1_a_name_with_dots_is_revoked_and_no_other() -> None:
    names = ("ann@mail.example.com", "ann@mail.example")
    auth = Authenticator(Watched({"t1": Identity.of("app", names[0]), "t2": Identity.of("app", names[1])}))
    auth.revoke(names[0])
    assert [status(await auth.identify(bearer(token))) for token in ("t1", "t2")] == [401, 200]


async def test_i1_a_forgotten_token_is_verified_again() -> None:
    verifier = Watched({"t": Identity.of("app", "ann")})
    auth = Authenticator(verifier)
    await auth.identify(bearer("t"))
    auth.forget("ann")
    assert status(await auth.identify(bearer("t"))) == 200
    del verifier.tokens["t"]
    auth.forget()
    assert status(await auth.identify(bearer("t"))) == 401
    assert verifier.asked == ["t", "t", "t"]


async def test_i1_scopes_that_are_missing_are_named_all_at_once() -> None:
    tokens = StaticTokens({"ci": CI, "ann": StaticToken(ANN, scopes=["a", "b", "c"])})
    auth = Authenticator(tokens, required_scopes=["a", "b", "a"])
    refused = await auth.identify(bearer(CI))
    assert refused == Refusal(403, "insufficient_scope", "the token lacks the scope a b")
    assert await auth.identify(bearer(CI)) is refused
    assert status(await auth.identify(bearer(ANN))) == 200
    assert auth.required_scopes == ("a", "b")


async def test_i1_verifiers_are_asked_in_turn_and_the_reason_of_one_that_knows_the_token_is_told() -> None:
    refusing = Watched({"tok-1": InvalidTokenError("late"), "tok-2": InvalidTokenError("no")})
    other = Watched({"tok-2": Identity.of("app")})
    auth = Authenticator([refusing, StaticTokens({"ci": CI}), other])
    assert await auth.identify(bearer("tok-1")) == Refusal(401, "invalid_token", "late")
    assert status(await auth.identify(bearer("tok-2"))) == 200
    assert status(await auth.identify(bearer(CI))) == 200
    assert (await auth.identify(bearer("v"))) == Refusal(401, "invalid_token", "the token is not known here")


async def test_i1_a_verifier_that_fails_is_a_503_and_no_log_has_the_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "secret-token-4711"
    faults = [ValueError(f"bad {secret}"), TokenCheckError("the service is down"), OSError(secret)]
    for fault in faults:
        found = await Authenticator(Watched({secret: fault})).identify(bearer(secret))
        assert isinstance(found, Refusal) and found.status == 503 and secret not in found.description
    quoted = await Authenticator(Watched({secret: InvalidTokenError(f"no {secret}")})).identify(
        bearer(secret)
    )
    assert isinstance(quoted, Refusal) and quoted.status == 401 and secret not in quoted.description
    assert "the service is down" in caplog.text and "ValueError" in caplog.text
    assert secret not in caplog.text


class OfTheSdk:
    """A verifier as applications on the SDK have one."""

    def __init__(self, token: object) -> None:
        self.token = token

    async def verify_token(self, token: str) -> Any:
        return self.token if token == "good" else None


async def test_i1_a_verifier_of_the_sdk_is_taken_as_it_is() -> None:
    token = AccessToken(
        token="good", client_id="app", scopes=["read"], expires_at=int(time.time()) + 60, subject="ann"
    )
    auth = Authenticator(OfTheSdk(token))
    found = await auth.identify(bearer("good"))
    assert isinstance(found, Identity)
    assert (found.client, found.subject, found.scopes, found.expires) == (
        "app",
        "ann",
        {"read"},
        token.expires_at,
    )
    assert status(await auth.identify(bearer("bad"))) == 401
    assert status(await Authenticator(OfTheSdk("a text")).identify(bearer("good"))) == 503
    late = token.model_copy(update={"expires_at": 1})
    assert status(await Authenticator(OfTheSdk(late)).identify(bearer("good"))) == 401


@pytest.mark.parametrize("auth", [[], 5, "token", {"token": "x"}, [None]])
def test_i1_what_verifies_nothing_is_refused_when_the_server_is_made(auth: Any) -> None:
    with pytest.raises(DefinitionError, match="auth"):
        Authenticator(auth)


async def test_i1_the_number_of_remembered_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_toolset.security import authenticator

    monkeypatch.setattr(authenticator, "_KNOWN", 3)
    verifier = Watched({f"t{number}": Identity.of(f"app{number}") for number in range(5)})
    auth = Authenticator(verifier)
    for token in verifier.tokens:
        await auth.identify(bearer(token))
    for token in ("t4", "t3", "t2", "t0"):
        await auth.identify(bearer(token))
    assert verifier.asked == ["t0", "t1", "t2", "t3", "t4", "t0"]


async def test_i1_other_rules_hold_for_tokens_that_were_verified_before() -> None:
    auth = Authenticator(StaticTokens({"ci": CI, "ann": ANN}))
    assert status(await auth.identify(bearer(ANN))) == 200
    auth.become(Authenticator(StaticTokens({"ci": CI}), required_scopes=["read"]))
    assert status(await auth.identify(bearer(ANN))) == 401
    assert status(await auth.identify(bearer(CI))) == 403


@dataclass
class Stream:
    """An open stream of a caller, and whether it was ended."""

    ended: bool = False

    async def run(self, auth: Authenticator, token: str) -> None:
        found = await auth.identify(bearer(token))
        assert isinstance(found, Identity)
        await auth.until_refused(bearer(token), found)
        self.ended = True


async def test_i1_a_later_token_of_the_same_caller_keeps_a_stream_open_and_another_callers_does_not() -> None:
    clock = Clock()
    soon, later = clock.now + 60, clock.now + 120
    tokens = {
        "ann 1": Identity.of("app", "ann", expires=soon),
        "ann 2": Identity.of("app", "ann", expires=later),
        "bob 1": Identity.of("app", "bob", expires=soon),
    }
    auth = Authenticator(Watched({name.replace(" ", ""): one for name, one in tokens.items()}), clock=clock)
    ann, bob = Stream(), Stream()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ann.run, auth, "ann1")
            group.start_soon(bob.run, auth, "bob1")
            await anyio.wait_all_tasks_blocked()
            assert status(await auth.identify(bearer("ann2"))) == 200
            clock.now += 61
            auth.forget("nobody")
            await anyio.wait_all_tasks_blocked()
            assert (ann.ended, bob.ended) == (False, True)
            clock.now += 61
            auth.forget("nobody")
    assert ann.ended


async def test_i1_the_streams_of_other_callers_stay_open_when_one_is_revoked() -> None:
    auth = Authenticator(StaticTokens({"ci": CI, "ann": ANN}))
    ann, ci = Stream(), Stream()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ann.run, auth, ANN)
            group.start_soon(ci.run, auth, CI)
            await anyio.wait_all_tasks_blocked()
            auth.revoke("ann")
            await anyio.wait_all_tasks_blocked()
            assert (ann.ended, ci.ended) == (True, False)
            group.cancel_scope.cancel()
    assert not auth._watchers
