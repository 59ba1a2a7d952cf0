"""`WaitingRuns`: runs that wait for answers of modern clients, in the memory of this server.

What a sandbox dumps is not signed, so it never leaves this process. The client holds a random reference in
the signed request state of its call, which is bound to the tool, the arguments and the caller, and used once.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from mcp_toolset._records import dataclass
from mcp_toolset.calls.code.run import CodeRun
from mcp_toolset.context.inner_call import InnerState
from mcp_toolset.context.request_state import STATE_LIFETIME
from mcp_toolset.errors import CallError

MAX_WAITING: Final = 128
"""Runs that wait at once."""

MAX_BYTES: Final = 64_000_000
"""Bytes of all of them together."""

_GONE: Final = "the run that waited for this answer has ended; see what is done, then run the code again"


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """One run that waits.

    Attributes:
        id: What tells it from other runs, in the ids of its calls.
        state: The dump of its sandbox.
        printed: What it has printed so far.
        run: Its calls so far, and those without an answer.
        asking: What the calls that ask have asked, by their ids.
        granted: The tools that it may call, each with its grant.
        spent: Seconds that it took so far.
    """

    id: str
    state: bytes
    printed: str
    run: CodeRun
    asking: Mapping[int, InnerState]
    granted: Mapping[str, str]
    spent: float


class WaitingRuns:
    """The runs of one server that wait for their clients."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Start without any."""
        self._now = now
        self._runs: OrderedDict[str, tuple[float, str, WaitingRun]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def keep(self, run: WaitingRun, *, owner: str) -> str:
        """Hold a run until its client comes back; the reference to find it by.

        Args:
            run: The run.
            owner: What it is bound to: the caller, the tool, the code and the grants.

        Raises:
            CallError: too many wait, or too large ones.
        """
        self._forget_old()
        held = sum(len(each.state) for _, _, each in self._runs.values())
        if len(self._runs) >= MAX_WAITING or held + len(run.state) > MAX_BYTES:
            raise CallError("too many runs wait for answers already; try again later")
        handle = secrets.token_urlsafe(18)
        self._runs[handle] = (self._now() + STATE_LIFETIME, owner, run)
        return handle

    def take(self, handle: str, owner: str) -> WaitingRun:
        """The run of a reference, once.

        Raises:
            CallError: it is not there, or not of this owner.
        """
        self._forget_old()
        found = self._runs.pop(handle, None)
        if found is None or found[1] != owner:
            raise CallError(_GONE)
        return found[2]

    def clear(self) -> None:
        """Forget all."""
        self._runs.clear()

    def _forget_old(self) -> None:
        while self._runs and next(iter(self._runs.values()))[0] < self._now():
            self._runs.popitem(last=False)
