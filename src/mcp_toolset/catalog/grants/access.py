"""`AccessPolicy`: the host's rules for who may use which deferred tool; they outweigh every grant."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.tools.view.view import ToolBinding

_log = logging.getLogger("mcp_toolset.grants")


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """Why a caller may not use a deferred tool, by the host's policy.

    Attributes:
        state: `unauthorised` for this caller, or `filtered` by a rule that does not depend on the caller.
        reason: The text for the model in a search hit, and when it resolves the tool.
        retry_in: Seconds until a retry makes sense, if ever.
        shown: Whether a search finds the tool; otherwise the caller never learns that it exists.
    """

    state: Literal["filtered", "unauthorised"] = "unauthorised"
    reason: str = "you are not authorised to use it"
    retry_in: float | None = None
    shown: bool = True


Access = Callable[[ToolBinding, ToolContext], AccessDenied | None]
"""Decides who may use a deferred tool; called at each search, resolve and call; must not wait."""


class AccessPolicy:
    """Calls the host's function; if the function fails, access is refused."""

    def __init__(self, access: Access | None) -> None:
        """Use the function `access`; without one every caller has access to every tool.

        Raises:
            DefinitionError: it is asynchronous; the gate cannot wait.
        """
        if inspect.iscoroutinefunction(access):
            raise DefinitionError("access is asked by the gate, which never waits; make it a plain function")
        self._access = access

    def __bool__(self) -> bool:
        """Whether the host has a policy."""
        return self._access is not None

    def withheld(self, binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        """Why a caller may not use a tool; `None` if the caller may."""
        if self._access is None:
            return None
        try:
            return self._access(binding, context)
        # The policy is the application's code and may raise anything; no caller may use the tool then.
        except Exception:
            _log.exception("the access policy raised about %s", in_log(binding.name))
            return AccessDenied(shown=False)

    def hides(self, binding: ToolBinding, context: ToolContext) -> bool:
        """Whether this caller must not learn of a tool."""
        withheld = self.withheld(binding, context)
        return withheld is not None and not withheld.shown

    def hidden(self, tools: Mapping[str, ToolBinding], context: ToolContext) -> frozenset[str]:
        """The public names of all tools that this caller must not learn of."""
        if self._access is None:
            return frozenset()
        return frozenset(name for name, tool in tools.items() if self.hides(tool, context))
