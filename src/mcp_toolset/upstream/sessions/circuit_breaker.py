"""`Circuit`: whether calls are let through to one session of a mounted server; a circuit breaker.

It knows no event loop: it is told what happened and what the time is, and says what holds and until when.

| state | calls | what it waits for |
|---|---|---|
| `closed` | go through | a call that gets no answer |
| `checking` | go through | the answer to a health check, for `TELL` seconds |
| `open` | fail at once | the same answer: it closes the circuit (half-open) |
| `lost` | fail at once | nothing more: the session is ended, and a new one decides |

A slow server answers the health check and stays. One that answers nothing is told within `TELL` seconds
after its first overdue call, which costs nothing should it recover, and is given `PATIENCE` before what
it holds in memory is given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

TELL: Final = 0.75
"""Seconds that a health check may take before calls fail at once."""

PATIENCE: Final = 5.0
"""Seconds that a health check may take before the session is given up."""

SILENCE: Final = 10.0
"""Seconds that the server must have been silent by then, counted from when the overdue call was sent."""

GIVEN_UP_AFTER: Final = 5.0
"""Seconds after which a call that its client cancels counts as one that got no answer."""

State = Literal["closed", "checking", "open", "lost"]


@dataclass(frozen=True, slots=True)
class Circuit:
    """What holds at a moment; each event gives another one.

    Attributes:
        state: One of the four in the table.
        waited: Seconds that the overdue call had waited.
        asked_at: When the health check was sent.
    """

    state: State = "closed"
    waited: float = 0.0
    asked_at: float = 0.0

    @property
    def refuses(self) -> bool:
        """Whether calls fail at once."""
        return self.state in ("open", "lost")

    @property
    def due(self) -> float:
        """When `at` has something else to say, if nothing is heard; infinity for never."""
        if self.state == "checking":
            return self.asked_at + TELL
        if self.state == "open":
            return self.asked_at + max(PATIENCE, SILENCE - self.waited)
        return float("inf")

    def missed(self, now: float, waited: float) -> Circuit:
        """A call got no answer in `waited` seconds; from `closed` this begins a health check."""
        return Circuit("checking", waited, now) if self.state == "closed" else self

    def heard(self) -> Circuit:
        """The server sent something; what is lost stays so, as its session is ending."""
        return self if self.state == "lost" else CLOSED

    def at(self, now: float) -> Circuit:
        """What holds by `now`."""
        if now < self.due:
            return self
        later: State = "open" if self.state == "checking" else "lost"
        return Circuit(later, self.waited, self.asked_at).at(now)

    @property
    def reason(self) -> str:
        """Why calls are refused; empty while they are not."""
        if not self.refuses:
            return ""
        if self.state == "open":
            checked, then = (
                TELL,
                "; calls go through once it answers; if it does not, it is given up",
            )
        else:
            checked, then = max(PATIENCE, SILENCE - self.waited), ""
        return (
            f"it does not answer: a call got no answer within {self.waited:.3g} s, "
            f"nor did a health check within {checked:.3g} s{then}"
        )


CLOSED: Final = Circuit()
