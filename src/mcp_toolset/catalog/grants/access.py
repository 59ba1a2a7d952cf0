"""`AccessPolicy`: who may use which deferred tool, by the host's rules; they outweigh every grant."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset._rule import require_given
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import LOCAL_CONTEXT, Identity, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.view import ToolBinding

_log = logging.getLogger("mcp_toolset.grants")


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """Why a caller may not use a deferred tool: the answer of `ToolsetServer(access=…)`.

    Attributes:
        state: `unauthorised` for this caller, or `filtered` by a rule that does not depend on the caller.
        reason: The text for the model in a search hit, and when it resolves the tool.
        retry_in: Seconds until a retry makes sense, if ever.
        shown: True if a search finds the tool. If not, the caller gets the answers for an unknown tool.
    """

    state: Literal["filtered", "unauthorised"] = "unauthorised"
    reason: str = "you are not authorised to use it"
    retry_in: float | None = None
    shown: bool = True

    def __post_init__(self) -> None:
        """Refuse an `AccessDenied` that the policy does not return: it would deny nothing."""
        require_given("AccessDenied", __name__)


Access = Callable[[ToolBinding, ToolContext], AccessDenied | None]
"""Decides who may use a deferred tool; called at each search, resolve and call; must not wait."""


_HIDDEN: Final = AccessDenied(shown=False)


class Visible:
    """The tools and servers that the policy of a server shows to callers; by default all."""

    @property
    def varies(self) -> bool:
        return False

    def group(self, identity: Identity | None) -> Hashable:
        """A key that is equal for callers with the same answers; `None` without a policy."""
        return None

    def hides(self, binding: ToolBinding, identity: Identity | None) -> bool:
        """True if a tool does not exist for a caller."""
        return False

    def hides_server(self, name: str, identity: Identity | None) -> bool:
        """True if a mounted server does not exist for a caller."""
        return False


EVERYTHING: Final = Visible()
"""For a server without a policy."""


def _check_access(access: object) -> None:
    if not callable(access) or isinstance(access, type):
        raise DefinitionError(f"access takes a function of (binding, context), not {access!r}")
    try:
        inspect.signature(access).bind(None, None)
    except TypeError:
        signature = inspect.signature(access)
        raise DefinitionError(f"access takes a function of (binding, context), not of {signature}") from None


class AccessPolicy:
    """Asks the server's policy and the host's function; if the function fails, access is refused."""

    def __init__(self, access: Access | None, visible: Visible = EVERYTHING) -> None:
        """Use the function `access`; without one every caller has access to every tool that is visible."""
        if inspect.iscoroutinefunction(access):
            raise DefinitionError(
                "access is called without waiting, so it cannot be an async def; make it a plain function"
            )
        if access is not None:
            _check_access(access)
        self._access = access
        self.visible = visible

    def __bool__(self) -> bool:
        return self._access is not None

    def withheld(self, binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        """Why a caller may not use a tool; `None` if the caller may."""
        if self.visible.hides(binding, context.identity) or not binding.exists_for(context):
            return _HIDDEN
        return self._refused(binding, context)

    def _refused(self, binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        if self._access is None:
            return None
        try:
            answer = self._access(binding, context)
        # The policy is the application's code and may raise anything; no caller may use the tool then.
        except Exception:
            _log.exception("the access policy raised about %s", in_log(binding.name))
            return _HIDDEN
        if answer is not None and not isinstance(cast("object", answer), AccessDenied):
            _log.error("the access policy of %s answered %r: refused", in_log(binding.name), answer)
            return _HIDDEN
        return answer

    def hides(self, binding: ToolBinding, context: ToolContext) -> bool:
        """True if this caller must not learn of a tool."""
        withheld = self.withheld(binding, context)
        return withheld is not None and not withheld.shown

    def hidden(self, tools: Mapping[str, ToolBinding], context: ToolContext) -> frozenset[str]:
        """The public names of all tools that this caller must not learn of."""
        if self._access is None and self.visible.group(context.identity) is None:
            return frozenset(name for name, tool in tools.items() if not tool.exists_for(context))
        return frozenset(name for name, tool in tools.items() if self.hides(tool, context))

    def hidden_in_texts(self, tools: Mapping[str, ToolBinding], identity: Identity | None) -> frozenset[str]:
        """The public names to leave out of a text that all callers in the same group read.

        The host's function is asked about `LOCAL_CONTEXT`, since it may tell these callers apart.
        """
        hides = self.visible.hides
        return frozenset(
            name
            for name, tool in tools.items()
            if tool.personal is not None
            or hides(tool, identity)
            or ((refused := self._refused(tool, LOCAL_CONTEXT)) is not None and not refused.shown)
        )
