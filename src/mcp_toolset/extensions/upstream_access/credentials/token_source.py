"""`TokenSource`: gives the `Authorization` header of each request to one mounted server.

`StoredTokens` keeps tokens in a `CredentialStore`, where `mcp-toolset login` puts them, and renews them. A
refresh token is used once: the lock of the credential is held from before the request until its answer is
stored, and the credential is read again first, as another process may have renewed it.

After a login that was granted and whose token is refused in its turn there is no other: the source says
`needs login` until other tokens are stored. Only scopes that were not asked for yet are asked for, once. All
processes know it by the store (`Credential.unproven`), until the server takes the token (`accepted`).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.concurrency.tasks import in_worker
from mcp_toolset.errors import NEEDS_LOGIN, LoginRequiredError, SecretError, UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.credentials.token_endpoint import (
    TOKEN_EXCHANGE,
    AuthorizationHttp,
    Credential,
    authorization_http,
    table_in,
    told,
    unlogged,
)
from mcp_toolset.extensions.upstream_access.server_auth import EnterpriseLogin, LoginPage, OAuth, ServerAuth
from mcp_toolset.security.credential_store import CredentialKey, CredentialStore, MemoryCredentialStore
from mcp_toolset.security.vault import FOLDER_VARIABLE, Vault
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.carrier import TokenSource

UNATTENDED: Final = 60.0
"""Seconds in which tokens must be got without a login of a person."""

_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Challenge:
    """The answer by which a server has asked for credentials, or for more scopes."""

    status: int = 401  # 401 or 403
    header: str = ""  # the value of `WWW-Authenticate`
    scopes: tuple[str, ...] = ()  # scopes to ask for besides

    def member(self, name: str) -> str:
        found = re.search(rf'(?<![\w-]){name}=(?:"([^"]*)"|([^\s,]+))', self.header)
        return "" if found is None else found[1] or found[2] or ""

    @property
    def wanted(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.scopes, *self.member("scope").split())))

    def written(self) -> str:
        """The challenge with all scopes that are to be asked for."""
        told = {name: self.member(name) for name in ("error", "resource_metadata")}
        members = told | {"scope": " ".join(self.wanted)}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in members.items() if value)


_FLOWS: Final = "mcp_toolset.extensions.upstream_access.credentials.sdk_flows"


class _Checked:
    """The page of a login, to which nobody is sent before its address was checked."""

    def __init__(self, http: AuthorizationHttp, page: LoginPage) -> None:
        self._http, self._page = http, page
        self.redirect_uri = page.redirect_uri

    async def visit(self, url: str) -> str:
        await self._http.check_page(url)
        return await self._page.visit(url)


async def obtained(
    http: AuthorizationHttp,
    url: str,
    auth: ServerAuth,
    challenge: Challenge,
    before: Credential,
    now: Callable[[], float],
) -> Credential:
    """New tokens for the server at `url`."""
    # The SDK's OAuth takes a second to import, and most processes never log in. Others go on meanwhile.
    await in_worker(partial(import_module, _FLOWS))
    from mcp_toolset.extensions.upstream_access.credentials.sdk_flows import Granted, OAuthFlowError, granted

    async def id_jag(issuer: str, resource: str) -> str:
        assert isinstance(auth, EnterpriseLogin), "an assertion is for this login alone"
        return await _id_jag(http, auth, issuer, resource)

    # The scopes of before stay in a step-up.
    known = {"access_token": before.token, "scope": " ".join(before.scopes)}
    tokens = known if before.header else dict[str, Any]()
    page = _Checked(http, auth.page) if isinstance(auth, OAuth) and auth.page is not None else None
    try:
        # A person takes the time that a person needs.
        with unlogged(), anyio.fail_after(UNATTENDED if page is None else None):
            found = await granted(
                url,
                auth,
                Granted(tokens, before.client),
                (challenge.status, challenge.written()),
                http.answered,
                page,
                id_jag,
            )
    except TimeoutError:
        raise http.fault(f"no token within {UNATTENDED:g} s; call again later") from None
    except OAuthFlowError as fault:
        raise http.fault(in_log(str(fault)[:_LONGEST])) from None
    renewable = Credential(resource=found.resource, client=found.client, server=found.server)
    try:
        return renewable.with_tokens(found.tokens, now())
    except ValueError as fault:
        raise http.fault(str(fault)) from None


async def _id_jag(http: AuthorizationHttp, auth: EnterpriseLogin, issuer: str, resource: str) -> str:
    """The assertion of the company's identity provider about its user (RFC 8693)."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": _ID_JAG,
        "audience": issuer,
        "resource": resource,
        "subject_token": auth.id_token if isinstance(auth.id_token, str) else await auth.id_token(),
        "subject_token_type": _ID_TOKEN,
    }
    answer = await http.form(auth.idp_token_endpoint, form, {"client_id": auth.idp_client_id})
    assertion = table_in(answer).get("access_token")
    if answer.status_code != 200 or not isinstance(assertion, str):
        raise http.fault(f"the identity provider gives no assertion: {told(answer)}; renew `id_token`")
    return assertion


LOOK: Final = 2.0
"""Seconds between two looks whether a login has stored other tokens, or a logout has removed them."""

PAUSE: Final = 60.0
"""Seconds until tokens that need no person are got again, if those got for a refusal are refused as well."""

REMEMBERED: Final = 30
"""Secrets of earlier tokens that are still not shown: a server may repeat what it has refused."""

_log = logging.getLogger("mcp_toolset.upstream")


class StoredTokens:
    """The tokens that all callers of one server share."""

    def __init__(
        self,
        name: str,
        url: str,
        auth: ServerAuth,
        store: CredentialStore,
        *,
        how: str,
        user: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        """Know nothing yet."""
        self.key = CredentialKey(url, auth.issuer or "", user)
        self._name = name
        self._auth = auth
        self._store = store
        self._how = how
        self._now = now
        self._held: Credential | None = None
        self._secrets = tuple[str, ...]()
        self._renewed_at = self._granted_at = float("-inf")
        self._lock = anyio.Lock()

    async def header(self, caller: Identity | None) -> str | None:
        held = self._held
        if held is None or held.is_due(self._now()):
            async with self._alone():
                held = self._held
                if held is None or held.is_due(self._now()):
                    held = self._held = await self._usable()
        return None if held is None else held.header

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        met = Challenge(status, challenge)
        steps_up = status == 403 and met.member("error") == "insufficient_scope"
        if status != 401 and not steps_up:
            return False
        wanted = {*met.wanted} if steps_up else set[str]()
        async with self._alone():
            if self._held is not None and self._held.header != used:
                return True
            kept = await self._kept()
            is_granted = kept is not None and wanted <= {*kept.scopes}
            if kept is not None and is_granted and self._is_another(kept, used):
                self._held = kept
                return True
            if wanted and kept is not None and is_granted:
                if kept.unproven:
                    raise self._refused(met)
                # The scopes are there already, so it is the user who may not.
                return False
            self._held = None
            if not steps_up and kept is not None and self._is_renewed(kept):
                self._renewed_at = self._now()
                self._held = await self._renewed(kept)
            if self._held is None:
                self._held = await self._granted(met, kept)
        return True

    def _is_another(self, kept: Credential, used: str | None) -> bool:
        """True if what is kept has not been refused yet."""
        return kept.header not in ("", used) and not kept.has_expired(self._now())

    def _is_renewed(self, kept: Credential) -> bool:
        return bool(kept.refresh_token) and self._now() >= self._renewed_at + PAUSE

    async def _granted(self, met: Challenge, kept: Credential | None) -> Credential:
        """New tokens as the answer to a refusal, which is given once."""
        if kept is not None and self._rests(met, kept):
            raise self._refused(met)
        self._granted_at = self._now()
        return await self._obtained(met, kept, 1 if kept is None else kept.unproven + 1)

    def _rests(self, met: Challenge, kept: Credential) -> bool:
        """True if a login was granted for the same already, and its token is refused."""
        auth, known = self._auth, kept.client.get("client_id")
        if not kept.unproven or (isinstance(auth, OAuth) and auth.client_id not in (None, known)):
            return False
        is_last = kept.unproven > 1 or {*met.wanted, *auth.scopes} <= {*kept.asked}
        if isinstance(auth, OAuth):
            return is_last
        return is_last and self._now() < self._granted_at + PAUSE and not kept.has_expired(self._now())

    def _refused(self, met: Challenge) -> UpstreamUnavailableError:
        said = " ".join(filter(None, (f"HTTP {met.status}", met.member("error"))))
        if not isinstance(self._auth, OAuth):
            why = f"it refuses the token that its authorization server has just given ({in_log(said)})"
            return UpstreamUnavailableError(self._name, why, sent=False)
        told = f"a login was granted, and the server refuses its token: {in_log(said)}"
        why = f"{NEEDS_LOGIN}{self._how} ({told})"
        return LoginRequiredError(self._name, why, for_more=met.status == 403)

    async def accepted(self, used: str | None) -> None:
        self._renewed_at = float("-inf")
        async with self._lock:
            if self._held is None or self._held.header != used or not self._held.unproven:
                return
            self._held = replace(self._held, unproven=0)
            try:
                async with self._store.locked(self.key):
                    kept = await self._kept()
                    if kept is not None and kept.header == used:
                        await self._store.save(self.key, replace(kept, unproven=0).record())
            # The request has succeeded; a store that fails is told to the one that needs it.
            except SecretError as fault:
                _log.debug("%s: %s", self._name, in_log(fault))

    async def changed(self) -> None:
        before = await self._seen()
        # The store may be changed by another process, which sets no event here.
        while (await self._seen()) in ("", before):  # noqa: ASYNC110
            await anyio.sleep(LOOK)

    async def withdrawn(self) -> None:
        # A logout is the work of another process, which sets no event here.
        while not await self.are_withdrawn():  # noqa: ASYNC110
            await anyio.sleep(LOOK)

    async def are_withdrawn(self) -> bool:
        """True if the tokens in use are not kept any more; those of another login are taken up."""
        async with self._lock:
            held = self._held
            try:
                kept = held if held is None else await self._kept()
            except SecretError as fault:
                _log.debug("%s: %s", self._name, in_log(fault))
                return False
            if held is not None and (kept is None or kept.header not in ("", held.header)):
                self._held = kept
                return kept is None
            return False

    async def _seen(self) -> str:
        """The header in the store; empty if there is none, or the store cannot be read."""
        try:
            kept = await self._kept()
        # A store that fails is told to the call that needs it.
        except SecretError as fault:
            _log.debug("%s: %s", self._name, in_log(fault))
            return ""
        return "" if kept is None else kept.header

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    async def login(self, challenge: Challenge) -> Credential:
        async with self._alone():
            self._held = await self._obtained(challenge, await self._kept())
            return self._held

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """One task at a time gets credentials; a store that fails is why there are none."""
        async with self._lock:
            try:
                yield
            except SecretError as fault:
                why = f"no credentials for it: {fault}"
                raise UpstreamUnavailableError(self._name, why, sent=False) from None

    async def _kept(self) -> Credential | None:
        record = await self._store.load(self.key)
        return None if record is None else self._noted(Credential.kept(record))

    def _noted(self, credential: Credential) -> Credential:
        """The credential, whose secrets are not shown from now on."""
        found = credential.secrets
        self._secrets = (*found, *(secret for secret in self._secrets if secret not in found))[:REMEMBERED]
        return credential

    async def _usable(self) -> Credential | None:
        """The stored credential, renewed if it is time to; `None` if there is none to try with."""
        kept = await self._kept()
        if kept is None or not kept.header:
            return None
        if not kept.is_due(self._now()):
            return kept
        if kept.refresh_token:
            try:
                return await self._renewed(kept)
            except UpstreamUnavailableError as fault:
                if kept.has_expired(self._now()):
                    raise
                _log.warning("%s", in_log(fault))
        return None if kept.has_expired(self._now()) else kept

    async def _renewed(self, stale: Credential) -> Credential | None:
        """The credential with new tokens; `None` if its refresh token is refused for good."""
        async with self._store.locked(self.key):
            kept = await self._kept()
            if kept is None or not kept.refresh_token:
                return None
            if kept.header != stale.header and not kept.has_expired(self._now()):
                return kept
            # A token that was issued must not be lost: the one that it replaces is void.
            with anyio.CancelScope(shield=True):
                return await self._exchanged(kept)

    async def _exchanged(self, kept: Credential) -> Credential | None:
        async with authorization_http(self._name, self.key.upstream, self._auth) as http:
            renewed = await http.renewed(kept, self._now())
        if renewed is None:
            _log.info("%s: the authorization server refuses the refresh token", self._name)
        await self._store.save(self.key, self._noted(renewed or kept.without_tokens()).record())
        return renewed

    async def _obtained(self, challenge: Challenge, kept: Credential | None, unproven: int = 0) -> Credential:
        auth = self._auth
        if isinstance(auth, OAuth) and auth.page is None:
            known = () if kept is None else kept.scopes
            more = [] if challenge.status == 401 else challenge.member("scope").split()
            options = "".join(f" --scope {in_log(scope)}" for scope in more if scope not in known)
            why = f"{NEEDS_LOGIN}{self._how}{options}"
            scopes = dict.fromkeys((*known, *more))
            raise LoginRequiredError(self._name, why, for_more=challenge.status == 403, scopes=scopes)
        challenge = replace(challenge, scopes=(*challenge.scopes, *auth.scopes))
        async with authorization_http(self._name, self.key.upstream, self._auth) as http:
            found = await obtained(http, self.key.upstream, auth, challenge, kept or Credential(), self._now)
        before = () if kept is None or challenge.status == 401 else kept.asked
        found = replace(found, asked=(*before, *challenge.wanted), unproven=unproven)
        async with self._store.locked(self.key):
            await self._store.save(self.key, self._noted(found).record())
        return found


def token_source(name: str, url: str, auth: ServerAuth, how: str) -> TokenSource:
    return StoredTokens(name, url, auth, store_of(auth), how=how)


def store_of(auth: ServerAuth) -> CredentialStore:
    """Where the tokens of a server are kept: those that need no login in memory alone."""
    if not isinstance(auth, OAuth):
        return MemoryCredentialStore()
    return auth.store or _vault(os.environ.get(FOLDER_VARIABLE, "")).credentials


@cache
def _vault(folder: str) -> Vault:
    """The store of the user: one for all servers, so that the keyring is asked once."""
    return Vault({**os.environ, FOLDER_VARIABLE: folder})
