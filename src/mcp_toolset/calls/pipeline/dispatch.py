"""`ToolDispatch`: the only way from a call to its result, for local, mounted, deferred and round calls.

Gate, argument check, middleware, execution hooks, handler or upstream, output check, result hooks: the chain
is composed once, when a table is frozen. Everything before the first middleware runs before the first
`await`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mcp_toolset.calls.pipeline.chain import Route, route_of, rules_for
from mcp_toolset.calls.pipeline.decision import OTEL, PROVIDER, error_result
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.middleware import ToolMiddleware
from mcp_toolset.calls.pipeline.observers import CURRENT, Listeners, Observation, note_in
from mcp_toolset.calls.pipeline.reporting import ended, extra_of, span_of
from mcp_toolset.calls.pipeline.rule_set import RuleSet, carriers
from mcp_toolset.concurrency.cancel_reason import CancelledError, from_outside
from mcp_toolset.errors import (
    ClientCapabilityError,
    ToolsetError,
    UnknownToolError,
    UpstreamError,
    UpstreamProtocolError,
)
from mcp_toolset.tools.binding.binding import StoreMiss, loaded
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.tools.view.tool_names import ToolNames
from mcp_toolset.tools.view.view import ToolBinding

_log = logging.getLogger("mcp_toolset.calls")
_MODULES: Final = sys.modules

MAX_REDIRECTS: Final = 1
"""How often a call may be redirected: `call_tool` calls one tool, never another calling tool."""


class ToolDispatch:
    """A frozen table of routes by public name."""

    def __init__(
        self,
        bindings: Iterable[ToolBinding],
        *,
        hooks: HookSet | None = None,
        middleware: Sequence[ToolMiddleware] = (),
        tool_middleware: Mapping[Any, Sequence[ToolMiddleware]] | None = None,
        rules: RuleSet | None = None,
        names: ToolNames | None = None,
        before: ToolDispatch | None = None,
        renewed: Callable[[], None] | None = None,
    ) -> None:
        """Compose the chain of every tool.

        Args:
            bindings: The tools, listed and deferred; names are unique.
            hooks: Execution hooks, innermost, and result hooks around them.
            middleware: Around every tool, outermost first.
            tool_middleware: Around single tools, inside the global ones.
            rules: All of these together, instead.
            names: Resolves names, if `bindings` are some of a bigger table.
            before: An older table; chains of the same bindings under the same rules are reused.
            renewed: Called when a hook was registered later.
        """
        rules = rules or RuleSet(hooks or HookSet(), middleware, tool_middleware or {})
        self._bindings, self._rules = list(bindings), rules
        self._names = names or ToolNames(self._bindings)
        self._renewed = renewed
        self._listeners = Listeners.of(rules.observers)
        self._digest = None if self._listeners is None else self._listeners.digest
        self._times = self._listeners is not None and self._listeners.times
        self._routes: Mapping[str, Route] = {} if before is None else before._routes
        for each in self._compose():
            each.hooks.applied_by(self)

    def _compose(self) -> list[RuleSet]:
        carrying = carriers(self._bindings)
        carried = {key: ToolNames(tools) for key, (_, tools) in carrying.items()}
        found = ((one, rules_for(one, self._rules, self._names, carried)) for one in self._bindings)
        self._routes = {one.name: route_of(one, own, self._routes.get(one.name)) for one, own in found}
        return [self._rules, *(rules for rules, _ in carrying.values())]

    def renew(self) -> None:
        """Compose the chains anew, as a hook was registered; calls that run go on as they began."""
        self._compose()
        if self._renewed is not None:
            self._renewed()

    def admit(
        self, call: ToolCall, context: ToolContext, seen: Observation | None = None
    ) -> tuple[Route, ToolCall]:
        """Everything before the first wait: look up, gate, argument check, redirect.

        Raises:
            UnknownToolError: the tool does not exist for this caller.
            CallError: the gate refused, or the arguments do not fit.
            StoreMiss: the gate needs data that must be fetched first.
        """
        for _ in range(MAX_REDIRECTS + 1):
            if seen is not None and self._digest is not None:
                seen.arguments = self._digest(call.arguments)
            route = self._routes.get(call.name)
            if route is None:
                raise UnknownToolError(call.name)
            binding = route.binding
            if seen is not None:
                seen.binding = binding
            if route.gates:
                for gate in route.gates:
                    gate(call, context)
            if binding.gate is not None:
                binding.gate(call, context)
            if binding.prepare is not None:
                call = binding.prepare(call, context)
            route.check_sent(call)
            if binding.redirect is None:
                return route, call
            call = binding.redirect(call, context)
        raise UnknownToolError(call.name)

    async def call(
        self,
        call: ToolCall,
        context: ToolContext = LOCAL_CONTEXT,
        *,
        raising: bool = False,
        spanned: bool = False,
    ) -> ToolResult:
        """Run a call to its result; an error that a model can act on becomes an error result.

        Args:
            call: The call.
            context: Its context.
            raising: Whether to raise errors from before the tool runs.
            spanned: Whether the call has its span, if it is traced.

        Raises:
            UnknownToolError: the tool does not exist for this caller.
            UpstreamProtocolError: a mounted server answered with a protocol error, which is passed on.
            ClientCapabilityError: the client lacks a capability that the tool needs; the client must learn
                of it, the model need not.
        """
        seen = token = route = result = None
        sent = call
        # Inline, without a function call: for nearly every call there is no observer and no tracing.
        if self._listeners is not None or (
            OTEL in _MODULES and PROVIDER in (of := _MODULES[OTEL].__dict__) and of[PROVIDER] is not None
        ):
            # A request of a client has its span already.
            inner = context.protocol_version is None or context.is_inner
            if inner and not spanned and (span := span_of(call, context, self._listeners)) is not None:
                with span:
                    return await self.call(call, context, raising=raising, spanned=True)
            seen = Observation()
            seen.times = self._times
            token = CURRENT.set(seen)
        try:
            try:
                route, call = self.admit(call, context, seen)
            except StoreMiss as miss:
                route, call = await loaded(partial(self.admit, call, context, seen), miss)
            if seen is not None:
                seen.repairs = call.repairs
            result = await route.run(call, context)
            if not isinstance(result, ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"a middleware of {call.name} answered {result!r}, which is not a ToolResult")
            return result
        # Middleware is the application's code and may raise anything.
        except BaseException as fault:
            note_in(seen, fault)
            if isinstance(fault, UpstreamError):
                _log_failure(fault, call, context)
            if (result := _answer(fault, call, raising and route is None)) is None:
                raise
            return result
        finally:
            if seen is not None and token is not None:
                ended(seen, token, self._listeners, sent, context, result)
                # Timers keep the variables of the call until they are due, and a fault has the frames of it.
                seen.fault = None


def _log_failure(fault: UpstreamError, call: ToolCall, context: ToolContext) -> None:
    """Log why a mounted server did not answer; a protocol error of it may quote arguments."""
    told = f"protocol error {fault.code}" if isinstance(fault, UpstreamProtocolError) else str(fault)
    extra = extra_of(call, context, fault.upstream)
    _log.info("%s failed: %s", in_log(call.name), in_log(told), extra=extra)


def _answer(fault: BaseException, call: ToolCall, raising: bool) -> ToolResult | None:
    """What an exception becomes for the model, or `None` if it is to be raised again."""
    if isinstance(fault, (UnknownToolError, UpstreamProtocolError, ClientCapabilityError)):
        return None
    if isinstance(fault, ToolsetError):
        return None if raising else error_result(fault)
    if not isinstance(fault, (Exception, SystemExit, CancelledError)) or from_outside(fault):
        return None
    # To exit would end the server for everybody; the model learns only that there was a fault.
    _log.error("a middleware of %s raised", in_log(call.name), exc_info=fault)
    return ToolResult.of_error(f"{call.name} could not be run because of a fault of the server")
