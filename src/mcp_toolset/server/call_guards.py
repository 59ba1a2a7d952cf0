"""`CallGuards`: what applies the policy and the limits of a server to its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from mcp_toolset.calls.pipeline.middleware import Guard, NamesPatterns
from mcp_toolset.errors import DefinitionError
from mcp_toolset.server.reloadable import toolsets_in
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.calls.middleware.call_limits import CallLimits
    from mcp_toolset.calls.middleware.permissions import Record
    from mcp_toolset.calls.middleware.rate import CountStore
    from mcp_toolset.security.policy.approvals import Approvals
    from mcp_toolset.security.policy.limits import Limits
    from mcp_toolset.security.policy.policy import Policy

    LimitsByPattern = Mapping[str, Limits]
    StatedLimits = tuple[LimitsByPattern, Mapping[str, LimitsByPattern]]
    """The limits for all tools, and those for the tools of mounted servers, by server."""


@runtime_checkable
class Limiting(Protocol):
    """A toolset that says how much callers may use, such as a configuration's."""

    @property
    def stated_limits(self) -> StatedLimits: ...


def limits_in(toolset: Toolset) -> Iterator[StatedLimits]:
    """What a toolset, and each that is nested in it, says of how much callers may use."""
    return (each.stated_limits for each in toolsets_in(toolset) if isinstance(each, Limiting))


class CallGuards:
    """The guards of one server: they are the same objects for as long as nothing that they apply changes."""

    def __init__(
        self,
        limits: LimitsByPattern | None,
        toolsets: Callable[[], Iterable[Toolset]],
        *,
        served: Callable[[], str],
        approvals: Approvals | str | PathLike[str] | Literal[False] | None,
        record: Record | None,
        store: CountStore | None = None,
        others: Callable[[], Iterable[Guard]] = tuple,
    ) -> None:
        """Begin with nothing.

        Args:
            limits: The limits of the program; those of `toolsets` hold besides.
            toolsets: What is served.
            served: What tells the server from others that share a file of approvals.
            approvals: Where calls wait for an approval.
            record: Notes decisions, for an audit log.
            store: Where replicas count together.
            others: The guards of extensions, as they are now.
        """
        self._others = others
        self._own: list[StatedLimits] = [(limits, {})] if limits else []
        self._toolsets = toolsets
        self._served = served
        self._approvals: Approvals | str | PathLike[str] | Literal[False] | None = approvals
        if not isinstance(approvals, str | PathLike | None) and approvals is not False:
            _check_approvals(approvals)
        self._record = record
        self._store = store
        self._policy: tuple[Policy | None, tuple[Guard, ...]] = (None, ())
        self._limits: list[tuple[StatedLimits, CallLimits]] = []
        self._known: tuple[Guard, ...] = ()

    def of(self, policy: Policy | None) -> tuple[Guard, ...]:
        """What applies a policy, and the limits that are stated now."""
        if self._policy[0] is not policy:
            self._policy = (policy, () if policy is None else (self._of_policy(policy),))
        found = (*self._policy[1], *self.of_limits(), *self._others())
        if len(found) != len(self._known) or any(a is not b for a, b in zip(found, self._known, strict=True)):
            self._known = found
        return self._known

    def with_patterns(self) -> list[NamesPatterns]:
        """The limits and the guards of extensions whose patterns are to fit tools."""
        return [*self.of_limits(), *(one for one in self._others() if isinstance(one, NamesPatterns))]

    def _of_policy(self, policy: Policy) -> Guard:
        from mcp_toolset.calls.middleware.permissions import PolicyGuard

        approvals = _opened(self._approvals)
        return PolicyGuard(policy, approvals=approvals, served=self._served(), record=self._record)

    def of_limits(self) -> list[CallLimits]:
        """The counters of limits that have not changed go on."""
        found = (stated for toolset in self._toolsets() for stated in limits_in(toolset))
        wanted = [stated for stated in (*self._own, *found) if stated[0] or any(stated[1].values())]
        if wanted != [stated for stated, _ in self._limits]:
            # Few servers have limits, and all of them start.
            from mcp_toolset.calls.middleware.call_limits import CallLimits

            known = self._limits
            self._limits = [
                (
                    stated,
                    next((made for one, made in known if one == stated), None)
                    or CallLimits(*stated, store=self._store),
                )
                for stated in wanted
            ]
        return [made for _, made in self._limits]


def _check_approvals(given: object) -> None:
    from mcp_toolset.security.policy.approvals import Approvals

    if not isinstance(given, Approvals):
        raise DefinitionError(f"approvals takes Approvals, the path of its file or False, not {given!r}")


def _opened(place: Approvals | str | PathLike[str] | Literal[False] | None) -> Approvals | None:
    from mcp_toolset.security.policy.approvals import Approvals, approvals_path

    if isinstance(place, Approvals):
        return place
    path = approvals_path() if place is None else place
    return None if path is None or path is False else Approvals(path)
