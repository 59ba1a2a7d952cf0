"""`WaitingRuns`: runs of code that wait for answers of modern clients, in this process or for all replicas.

The client holds a random reference in the sealed request state of its call, which is bound to the tool, the
arguments and the caller, and used once. A run that leaves this process is sealed: what a sandbox dumps is not
signed, and a sandbox must not load what somebody else has written.
"""

from __future__ import annotations

import json
import secrets
import time
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.calls.suspended import Sealer, SuspendedStore
from mcp_toolset.context.inner_call import InnerState
from mcp_toolset.context.request_state import STATE_LIFETIME, Replay
from mcp_toolset.errors import CallError, StoreError

MAX_WAITING: Final = 128
"""Runs that wait at once in this process; in a store, those of all callers who are not known."""

MAX_BYTES: Final = 64_000_000
"""Bytes of all of them together."""

OWN_WAITING: Final = 32
"""Runs of one caller that wait at once, in this process or in a store."""

OWN_BYTES: Final = 16_000_000
"""Bytes of all of them together."""

_PURPOSE: Final = "code run"
_PLACE: Final = "place of a code run"
_GONE: Final = "the run that waited for this answer has ended; see what is done, then run the code again"


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """One run that waits.

    Attributes:
        id: What tells it from other runs, in the ids of its calls.
        state: The dump of its sandbox.
        printed: What it has printed so far.
        run: Its calls so far, and those without an answer; see `CodeRun.saved`.
        asking: What the calls that ask have asked, by their ids.
        granted: The tools that it may call, each with its grant.
        spent: Seconds that it took so far.
    """

    id: str
    state: bytes
    printed: str
    run: Mapping[str, Any]
    asking: Mapping[int, InnerState]
    granted: Mapping[str, str]
    spent: float

    def saved(self) -> bytes:
        asking = {
            id: {"replay": one.replay.saved(), "passed_on": one.replay.passed_on, "relayed": one.relayed}
            for id, one in self.asking.items()
        }
        saved = {
            "id": self.id,
            "state": b64encode(self.state).decode(),
            "printed": self.printed,
            "run": self.run,
            "asking": asking,
            "granted": dict(self.granted),
            "spent": self.spent,
        }
        try:
            return json.dumps(saved, separators=(",", ":")).encode()
        except (TypeError, ValueError) as fault:
            raise CallError(f"the run cannot wait for an answer: {fault}") from None

    @classmethod
    def of_saved(cls, data: bytes) -> WaitingRun:
        """What `saved` gave."""
        saved = json.loads(data)
        asking = dict[int, InnerState]()
        for id, one in saved["asking"].items():
            replay = Replay.of_saved(one["replay"])
            replay.passed_on = one["passed_on"]
            asking[int(id)] = InnerState(replay, one["relayed"])
        state, run, granted = b64decode(saved["state"]), saved["run"], saved["granted"]
        return cls(saved["id"], state, saved["printed"], run, asking, granted, saved["spent"])


class WaitingRuns:
    """The runs of one server, or of its replicas, that wait for their clients."""

    def __init__(
        self, store: SuspendedStore | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._now = now
        self._runs: OrderedDict[str, tuple[float, str, bytes, str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    async def keep(self, run: WaitingRun, *, owner: str, share: str = "") -> str:
        """Hold a run until its client comes back; the reference to find it by.

        Args:
            run: The run.
            owner: What it is bound to: the caller, the tool, the code and the grants.
            share: Whose share it takes of what is held; empty if the caller is unknown.
        """
        data, handle = run.saved(), secrets.token_urlsafe(18)
        if self._store is not None:
            try:
                await self._put(self._store, handle, owner, data, share)
            except StoreError as fault:
                raise CallError(str(fault)) from None
            return handle
        self._forget_old()
        every = [len(each) for _, _, each, _ in self._runs.values()]
        own = [len(each) for _, _, each, whose in self._runs.values() if whose == share]
        if share and (len(own) >= OWN_WAITING or sum(own) + len(data) > OWN_BYTES):
            raise _too_many(share)
        if len(every) >= MAX_WAITING or sum(every) + len(data) > MAX_BYTES:
            raise _too_many("")
        self._runs[handle] = (self._now() + STATE_LIFETIME, owner, data, share)
        return handle

    async def take(self, handle: str, owner: str) -> WaitingRun:
        """The run of a reference, once."""
        held = self._store
        data = self._taken(handle, owner) if held is None else await self._got(held, handle, owner)
        if data is None:
            raise CallError(_GONE)
        return WaitingRun.of_saved(data)

    def clear(self) -> None:
        """Forget the runs of this process."""
        self._runs.clear()

    async def _put(self, store: SuspendedStore, handle: str, owner: str, data: bytes, share: str) -> None:
        places = await self._placed(store, share, len(data))
        text = "\n".join((" ".join(places), data.decode()))
        sealed = _sealer(store).seal(text, who=owner, what=handle, seconds=store.patience)
        await store.kept(_PURPOSE).put(handle, sealed.encode(), seconds=store.patience)

    async def _placed(self, store: SuspendedStore, share: str, size: int) -> list[str]:
        """The places in a caller's share of the store that a run takes, one for so many bytes."""
        taken, most = store.used(_PLACE), OWN_WAITING if share else MAX_WAITING
        wanted, whose = 1 + size * OWN_WAITING // OWN_BYTES, sha256(share.encode()).hexdigest()[:32]
        places, first = list[str](), secrets.randbelow(most)
        for number in range(most if wanted <= most else 0):
            place = f"{whose}.{(first + number) % most}"
            if await taken.use(place, seconds=store.patience):
                places.append(place)
                if len(places) == wanted:
                    return places
        await self._free(store, places)
        raise _too_many(share)

    async def _free(self, store: SuspendedStore, places: Iterable[str]) -> None:
        for place in places:
            await store.used(_PLACE).free(place)

    async def _got(self, store: SuspendedStore, handle: str, owner: str) -> bytes | None:
        try:
            sealed = await store.kept(_PURPOSE).take(handle)
            if sealed is None:
                return None
            places, _, data = (
                _sealer(store).open(sealed.decode(), who=owner, what=handle).data.partition("\n")
            )
            await self._free(store, places.split())
        except StoreError as fault:
            raise CallError(str(fault)) from None
        return data.encode()

    def _taken(self, handle: str, owner: str) -> bytes | None:
        self._forget_old()
        found = self._runs.pop(handle, None)
        return None if found is None or found[1] != owner else found[2]

    def _forget_old(self) -> None:
        while self._runs and next(iter(self._runs.values()))[0] < self._now():
            self._runs.popitem(last=False)


def _too_many(share: str) -> CallError:
    if not share:
        return CallError("too many runs wait for answers already; try again later")
    most = f"{OWN_WAITING} runs with {OWN_BYTES} bytes of one caller can wait for answers"
    return CallError(f"{most}; keep less in variables, or try again later")


def _sealer(store: SuspendedStore) -> Sealer:
    return Sealer(_PURPOSE, lambda: store.keys, mend="see what is done, then run the code again")
