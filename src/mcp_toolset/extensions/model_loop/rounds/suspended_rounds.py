"""`SuspendedRounds`: a round that waits becomes one sealed text, and goes on in another process."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Final

from mcp_toolset.calls.pipeline.rules import AnyRule
from mcp_toolset.calls.suspended import PATIENCE, Sealer, SuspendedStore, digest_of
from mcp_toolset.errors import RequestStateError, RoundError
from mcp_toolset.extensions.model_loop.rounds.round_plan import ToolRoundPlan
from mcp_toolset.extensions.model_loop.rounds.tool_round import ToolRound
from mcp_toolset.security.secrets.key_ring import KeyRing
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolContext
from mcp_toolset.tools.view.view import ToolView

_KIND: Final = "suspended round"
_MEND: Final = "show the model its turn again"


class SuspendedRounds:
    """Suspends rounds, and resumes them for the same caller.

    With a `JournalGuard` among the rules, a call that ran after the round was suspended does not run again.
    """

    def __init__(
        self,
        store: SuspendedStore | KeyRing,
        *,
        patience: float | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Seal with the keys of a store.

        Args:
            store: Has the keys, and knows which texts were used: each is used once. It has to be open. A
                `KeyRing` alone knows no use.
            patience: Seconds for which a round can be resumed; the store's, or a day, unless given.
            now: Seconds since the epoch.
        """
        self._once = None if isinstance(store, KeyRing) else store.used(_KIND)
        known = PATIENCE if isinstance(store, KeyRing) else store.patience
        self._patience = known if patience is None else patience
        self._sealer = Sealer(
            _KIND, lambda: store if isinstance(store, KeyRing) else store.keys, mend=_MEND, now=now
        )

    def suspend(self, round: ToolRound | ToolRoundPlan, *, context: ToolContext = LOCAL_CONTEXT) -> str:
        """The round as a text, to be kept anywhere; it goes on for the principal and session of `context`."""
        state, what = round.to_state(), digest_of(context.session or "")
        return self._sealer.seal(state, who=context.principal, what=what, seconds=self._patience)

    async def resume(
        self,
        text: str,
        view: ToolView,
        *,
        known: Container[str] = (),
        context: ToolContext = LOCAL_CONTEXT,
        hooks: AnyRule | None = None,
        rules: AnyRule | None = None,
    ) -> ToolRound:
        """Go on with a round, here or in another process; see `ToolRound.from_state`.

        Args:
            text: What `suspend` returned.
            view: The present tools. A call whose tool has changed since, or is gone, becomes invalid.
            known: As in `from_openai`.
            context: The context that the calls will run with.
            hooks: The hooks that were applied before.
            rules: The rules that were applied before, such as the journal.

        Raises:
            RoundError: the text cannot be used, here, now or any more; or hooks or rules are missing.
            StoreError: it cannot be known now whether it was used.
        """
        what = digest_of(context.session or "")
        try:
            suspended = self._sealer.open(text, who=context.principal, what=what)
            made = ToolRound.from_state(suspended.data, view, known=known, hooks=hooks, rules=rules)
            seconds = 2 * self._patience
            if self._once is not None and not await self._once.use(suspended.id, seconds=seconds):
                raise self._sealer.refused("it was used before; see what its calls have done")
        except RequestStateError as fault:
            raise RoundError(str(fault)) from None
        return made
