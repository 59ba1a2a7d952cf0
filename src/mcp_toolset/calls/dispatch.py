"""`ToolDispatch`: the only way from a call to its result, for local, mounted, deferred and round calls.

Gate, argument check, middleware, execution hooks, handler or upstream, output check, result hooks: the chain
of a tool is composed once, when a table of tools is frozen, and taken over by the next table if neither the
tool nor its rules have changed. Everything before the first middleware runs before the first `await`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import anyio

from mcp_toolset import errors
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls import observers
from mcp_toolset.calls.bound_hooks import BoundHook, BoundResultHook
from mcp_toolset.calls.decision import OTEL, PROVIDER, Complete, Reject, RunNormally, error_result, rejection
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.middleware import CallNext, Guard, Run, ToolMiddleware
from mcp_toolset.calls.rules import Rules, carriers
from mcp_toolset.concurrency.tasks import CancelledError, from_outside
from mcp_toolset.tools.binding import CarriedRules, Executor, Gate, StoreMiss, ToolNames, loaded
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.definition import copied
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import InputRequired, ToolResult, checked_result
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import ToolBinding, same


def completed(binding: ToolBinding, decision: Complete) -> ToolResult:
    """A hook's answer in the form that the output schema requires; clients refuse any other form."""
    try:
        result = decision.result()
        if isinstance(decision.output, ToolResult):
            checked_result(result, f"a hook of {binding.name}")
        if binding.output is None:
            return result
        if not isinstance(decision.output, ToolResult):
            result = in_output_form(binding.output, ToolResult.of_structured(decision.output), result.text)
    except ValueError as fault:
        raise errors.InvalidOutputError(
            f"a hook answered {binding.name} with a value that has no JSON form: {fault}"
        ) from None
    try:
        check_output(binding, result)
    except errors.InvalidOutputError as fault:
        raise errors.InvalidOutputError(
            f"a hook has answered a call with an invalid result: {fault}"
        ) from None
    return result


def in_output_form(output: SchemaCheck, answer: ToolResult, text: str) -> ToolResult:
    """Wrap an answer as `{"result": answer}` if only that fits the output schema; else leave it unchanged."""
    wrapped = {"result": answer.structured}
    if not output.is_valid(answer.structured) and output.is_valid(wrapped):
        return ToolResult.of_structured(wrapped, text=text)
    return answer


def check_output(binding: ToolBinding, result: ToolResult) -> None:
    if binding.output is None:
        return
    wire = result.wire
    # As `is_complete`, without a further function call for each result.
    if (
        wire.get("isError") is True
        or result.ask is not None
        or wire.get("resultType", "complete") != "complete"
    ):
        return
    if (result.halt is not None or result.unstructured) and "structuredContent" not in wire:
        return
    if "structuredContent" not in wire:
        raise errors.InvalidOutputError(
            f"{_place(binding)} declares an output schema and returned no structured content"
        )
    if not binding.output.is_valid(wire["structuredContent"]):
        faults = "; ".join(binding.output.problems(wire["structuredContent"]))
        raise errors.InvalidOutputError(
            f"{_place(binding)} returned a result that does not fit its output schema: {faults}"
        )


def _place(binding: ToolBinding) -> str:
    return f"{binding.source}: {binding.name}" if binding.source else binding.name


_log = logging.getLogger("mcp_toolset.calls")


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The rules for one tool: middleware and hooks, and the names by which middleware knows the tool."""

    middleware: tuple[ToolMiddleware, ...] = ()
    execution_hooks: tuple[BoundHook, ...] = ()
    result_hooks: tuple[BoundResultHook, ...] = ()
    names: tuple[str, ...] = ()
    observed: bool = False
    guards: tuple[Guard, ...] = ()
    carried: tuple[CarriedRules, ...] = ()

    def same_as(self, other: ToolRules) -> bool:
        return (
            same(self.middleware, other.middleware)
            and same(self.execution_hooks, other.execution_hooks)
            and same(self.result_hooks, other.result_hooks)
            and self.names == other.names
            and self.observed == other.observed
            and same(self.guards, other.guards)
            and same(self.carried, other.carried)
        )

    def guarded(self, binding: ToolBinding) -> list[tuple[Guard, ToolBinding]]:
        """The guards, each with the tool; carried ones judge it by its name in their toolset.

        Policies come first: a call that a person has not allowed uses up no limit. Journals come last:
        whatever another guard refuses is no outcome to record.
        """
        inner = (
            (guard, replace(binding, own=one.name)) for one in self.carried for guard in one.rules.guards
        )
        found = [*((guard, binding) for guard in self.guards), *inner]
        return sorted(found, key=lambda one: _place_of(one[0]))


def _place_of(guard: Guard) -> int:
    if hasattr(guard, "replaying"):
        return 2
    return 0 if hasattr(guard, "recorded") else 1


_NO_RULES: Final = ToolRules()
_OBSERVED: Final = ToolRules(observed=True)


@dataclass(frozen=True, slots=True)
class Route:
    """A binding with its composed chain and gates, the names that refer to it, and the rules in the chain."""

    binding: ToolBinding
    run: Run
    names: tuple[str, ...] = ()
    rules: ToolRules | None = None
    gates: tuple[Gate, ...] = ()

    def check(self, call: ToolCall) -> None:
        if not self.binding.arguments.is_valid(call.arguments):
            raise errors.InvalidArgumentsError(self.binding.arguments.misfit(call.name, call.arguments))


def _misfit(binding: ToolBinding, call: ToolCall) -> errors.InvalidArgumentsError:
    """The error for invalid arguments; it tells the caller how to correct the call."""
    fault = binding.arguments.misfit(call.name, call.arguments)
    return errors.InvalidArgumentsError(fault + ("" if binding.explain is None else binding.explain(call)))


def rules_for(
    binding: ToolBinding, rules: Rules, names: ToolNames, carried: Mapping[int, ToolNames]
) -> ToolRules:
    own = _own_rules_for(binding, rules, names)
    if not binding.carried:
        return own
    inner = (
        _own_rules_for(binding.known_to(one), one.rules, carried[id(one.rules)]) for one in binding.carried
    )
    parts = [own, *inner]
    return ToolRules(
        middleware=tuple(layer for part in parts for layer in part.middleware),
        execution_hooks=tuple(hook for part in parts for hook in part.execution_hooks),
        result_hooks=tuple(hook for part in parts for hook in part.result_hooks),
        names=names.exact(binding),
        observed=own.observed,
        guards=own.guards,
        carried=binding.carried,
    )


def _own_rules_for(binding: ToolBinding, rules: Rules, names: ToolNames) -> ToolRules:
    hooks = rules.hooks
    observed = bool(rules.observers)
    if hooks.is_empty and not rules.has_middleware and not rules.guards:
        return _OBSERVED if observed else _NO_RULES
    middleware = rules.around(binding, names)
    exact = names.exact(binding) if middleware else ()
    before, after = hooks.execution_hooks(binding, names), hooks.result_hooks(binding, names)
    return ToolRules(middleware, before, after, exact, observed, tuple(rules.guards))


def route_of(binding: ToolBinding, rules: ToolRules, before: Route | None) -> Route:
    if before is not None and before.binding is binding and before.rules is not None:
        if rules is before.rules or rules.same_as(before.rules):
            return before
    is_limited = binding.timeout is not None and not binding.manual
    run = partial(_run_tool, binding, partial(_run_in_time, binding) if is_limited else binding.execute)
    if rules.observed:
        run = partial(_run_noted, run)
    middleware, execution_hooks, result_hooks = rules.middleware, rules.execution_hooks, rules.result_hooks
    guarded = rules.guarded(binding)
    gates = tuple(gate for guard, known in guarded if (gate := guard.gate(known)) is not None)
    route = Route(binding, run, rules.names, rules, gates)
    run = _run_guarded(guarded, route, run)
    if execution_hooks or middleware:
        run = partial(_run_after_hooks, () if result_hooks else execution_hooks, route, run)
    if result_hooks:
        run = partial(_run_with_result_hooks, result_hooks, execution_hooks, route, run)
    for layer in reversed(middleware):
        run = partial(_run_in_middleware, layer, route, run)
    if guarded or middleware:
        run = partial(_run_with_sent, bool(middleware), run)
    return Route(binding, run, rules.names, rules, gates)


def _run_guarded(guarded: Sequence[tuple[Guard, ToolBinding]], route: Route, run: Run) -> Run:
    # Innermost first: a guard that stands before a journal refuses before the journal records.
    for guard, known in reversed(guarded):
        if (recorded := getattr(guard, "recorded", None)) is not None:
            run = recorded(known, run)
    if layers := [layer for guard, known in guarded for layer in guard.layers(known)]:
        replaying = ((getattr(one, "replaying", None), known) for one, known in guarded)
        first = (replays(known) for replays, known in replaying if replays is not None)
        layers = [*(layer for layer in first if layer is not None), *layers]
    for layer in reversed(layers):
        run = partial(_run_in_middleware, layer, route, run)
    return run


def _run_noted(run: Run, call: ToolCall, context: ToolContext) -> Awaitable[ToolResult]:
    if (seen := observers.CURRENT.get()) is not None:
        seen.ran = True
    return run(call, context)


def _run_with_sent(copies: bool, run: Run, call: ToolCall, context: ToolContext) -> Awaitable[ToolResult]:
    """Run a call with a record of the sent arguments, since middleware may edit arguments in place."""
    sent = _sent_arguments(call)
    return run(replace(call, sent=copied(dict(sent)) if copies else sent), context)


def _sent_arguments(call: ToolCall) -> Mapping[str, Any]:
    # Of a round, this is what the model wrote: its hooks may have run already.
    return call.original if call.id and call.original is not None else call.arguments


async def _run_after_hooks(
    hooks: tuple[BoundHook, ...], route: Route, run: Run, call: ToolCall, context: ToolContext
) -> ToolResult:
    """Run a call, unless a hook decides it; a repeated call keeps the edits of its first run."""
    if hooks:
        call, answer = await _ask_hooks(hooks, route, call, context)
        if answer is not None:
            return answer
    if edits := context.edits:
        call = call.with_edits(edits)
        route.check(call)
    try:
        result = await run(call, context)
    except (InputRequired, BaseExceptionGroup):
        context.keep(call.edits)
        raise
    if not result.is_complete:
        context.keep(call.edits)
    return result


async def _run_in_middleware(
    layer: ToolMiddleware, route: Route, run: Run, call: ToolCall, context: ToolContext
) -> ToolResult:
    rest = CallNext(run, call, context, route.check, route.binding.definition, route.names)
    result = await layer(call, context, rest)
    # A result that was passed through unchanged has been checked already.
    if result is rest.given or not isinstance(cast("object", result), ToolResult):
        return result
    return checked_result(result, f"a middleware of {call.name}")


async def _ask_hooks(
    hooks: tuple[BoundHook, ...], route: Route, call: ToolCall, context: ToolContext
) -> tuple[ToolCall, ToolResult | None]:
    """The call after the hooks, each of which gets a copy, and their answer if one of them answered."""
    for hook in hooks:
        decision = await hook.decide(copied_call(call), context)
        if route.rules is not None and route.rules.observed:
            observers.note_decision(decision)
        match decision:
            case Complete():
                return call, completed(route.binding, decision)
            case Reject():
                return call, rejection(decision)
            case RunNormally(input=edited):
                call = _edited(call, edited)
                route.check(call)
    return call, None


def _edited(call: ToolCall, arguments: dict[str, Any]) -> ToolCall:
    sent = _sent_arguments(call) if call.sent is None else call.sent
    original = call.arguments if call.original is None else call.original
    rest = (call.grant, call.repairs, call.key, call.meta, sent, call.recorded)
    return ToolCall(call.name, arguments, call.id, original, *rest)


def copied_call(call: ToolCall) -> ToolCall:
    return ToolCall(call.name, copied(call.arguments), call.id, call.original, call.grant, call.repairs)


async def _run_with_result_hooks(
    result_hooks: tuple[BoundResultHook, ...],
    hooks: tuple[BoundHook, ...],
    route: Route,
    run: Run,
    call: ToolCall,
    context: ToolContext,
) -> ToolResult:
    try:
        call, answer = await _ask_hooks(hooks, route, call, context)
        result = await run(call, context) if answer is None else answer
    except errors.UpstreamProtocolError:
        raise
    except (errors.CallError, errors.UpstreamError) as fault:
        shown = error_result(fault)
        result = await _pass_result(result_hooks, route.binding, call, shown, context)
        if result is shown:
            raise
        return result
    return await _pass_result(result_hooks, route.binding, call, result, context)


async def _pass_result(
    result_hooks: tuple[BoundResultHook, ...],
    binding: ToolBinding,
    call: ToolCall,
    result: ToolResult,
    context: ToolContext,
) -> ToolResult:
    if not result.is_complete:
        return result
    given = result
    call = copied_call(call)
    for hook in result_hooks:
        result = await hook.passed(call, result, context)
    if result is not given:
        checked_result(result, f"a result hook of {call.name}")
        try:
            check_output(binding, result)
        except errors.InvalidOutputError as fault:
            raise errors.InvalidOutputError(f"a result hook returned an invalid result: {fault}") from None
    return result


async def _run_in_time(binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
    """Run a tool that has its own time limit; a manual tool waits for a person, with its own deadline."""
    with anyio.move_on_after(binding.timeout) as limit:
        return await binding.execute(call, context)
    assert limit.cancelled_caught
    told = ToolResult.of_error(f"{call.name} gave no answer within {binding.timeout:g} s and was stopped")
    return replace(told, stopped=True)


async def _run_tool(
    binding: ToolBinding, execute: Executor, call: ToolCall, context: ToolContext
) -> ToolResult:
    try:
        result = await execute(call, context)
    except (errors.UnknownToolError, errors.StoreError) as fault:
        # The called tool exists: its handler looked up another tool, or uses a store that failed.
        return ToolResult.of_error(f"{call.name} failed: {fault}")
    except (errors.CallError, errors.UpstreamError):
        raise
    # A handler is the application's code and may raise anything, or try to exit, which would end
    # the server for everybody; its message is for the model, its traceback for the log.
    except (Exception, SystemExit) as fault:
        _log.exception(
            "tool %s raised", in_log(call.name), extra=observers.extra_of(call, context, binding.source)
        )
        told = errors.innermost(fault)
        return ToolResult.of_error(f"{call.name} failed: {str(told) or type(told).__name__}")
    except CancelledError as fault:
        if from_outside(fault):
            raise
        _log.exception(
            "tool %s raised", in_log(call.name), extra=observers.extra_of(call, context, binding.source)
        )
        return ToolResult.of_error(f"{call.name} failed: something that it waited for was cancelled")
    if binding.output is not None:
        check_output(binding, result)
    return result


_MODULES: Final = sys.modules

MAX_REDIRECTS: Final = 1  # `call_tool` calls one tool, never another calling tool.


class ToolDispatch:
    """A frozen table of routes by public name."""

    def __init__(
        self,
        bindings: Iterable[ToolBinding],
        *,
        hooks: HookSet | None = None,
        middleware: Sequence[ToolMiddleware] = (),
        tool_middleware: Mapping[Any, Sequence[ToolMiddleware]] | None = None,
        rules: Rules | None = None,
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
        rules = rules or Rules(hooks or HookSet(), middleware, tool_middleware or {})
        self._bindings, self._rules = list(bindings), rules
        self._names = names or ToolNames(self._bindings)
        self._renewed = renewed
        self._listeners = observers.Listeners.of(rules.observers)
        self._digest = None if self._listeners is None else self._listeners.digest
        self._times = self._listeners is not None and self._listeners.times
        self._routes: Mapping[str, Route] = {} if before is None else before._routes
        for each in self._compose():
            each.hooks.applied_by(self)

    def _compose(self) -> list[Rules]:
        carrying = carriers(self._bindings)
        carried = {key: ToolNames(tools) for key, (_, tools) in carrying.items()}
        found = ((one, rules_for(one, self._rules, self._names, carried)) for one in self._bindings)
        self._routes = {one.name: route_of(one, own, self._routes.get(one.name)) for one, own in found}
        return [self._rules, *(rules for rules, _ in carrying.values())]

    def renew(self) -> None:
        """Compose the chains again after a hook was registered; calls that run keep their chain."""
        self._compose()
        if self._renewed is not None:
            self._renewed()

    def admit(
        self, call: ToolCall, context: ToolContext, seen: observers.Observation | None = None
    ) -> tuple[Route, ToolCall]:
        """Do all that comes before the first wait: look up, gate, argument check, redirect.

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
                raise errors.UnknownToolError(call.name)
            binding = route.binding
            if seen is not None:
                seen.binding = binding
            for gate in route.gates:
                gate(call, context)
            if binding.gate is not None:
                binding.gate(call, context)
            if binding.prepare is not None:
                call = binding.prepare(call, context)
            if not binding.arguments.is_valid(call.arguments):
                raise _misfit(binding, call)
            if binding.redirect is None:
                return route, call
            call = binding.redirect(call, context)
        raise errors.UnknownToolError(call.name)

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
            raising: True to raise errors from before the tool runs.
            spanned: True if the call has its span, if it is traced.

        Raises:
            UnknownToolError: the tool does not exist for this caller.
            UpstreamProtocolError: a mounted server answered with a protocol error, which is passed on.
            ClientCapabilityError: the client lacks a capability that the tool needs, and must learn of it.
        """
        seen = token = route = result = None
        sent = call
        # Inline, without a function call: for nearly every call there is no observer and no tracing.
        if self._listeners is not None or (
            OTEL in _MODULES and PROVIDER in (of := _MODULES[OTEL].__dict__) and of[PROVIDER] is not None
        ):
            # A request of a client has its span already.
            inner = context.protocol_version is None or context.is_inner
            if (
                inner
                and not spanned
                and (span := observers.span_of(call, context, self._listeners)) is not None
            ):
                with span:
                    return await self.call(call, context, raising=raising, spanned=True)
            seen = observers.Observation()
            seen.times = self._times
            token = observers.CURRENT.set(seen)
        try:
            try:
                route, call = self.admit(call, context, seen)
            except StoreMiss as miss:
                route, call = await loaded(partial(self.admit, call, context, seen), miss)
            if seen is not None:
                seen.repairs = call.repairs
            result = await route.run(call, context)
            if not isinstance(result, ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"a middleware of {call.name} answered {result!r}, which is not a ToolResult; return a "
                    "ToolResult, or what `await next()` returns"
                )
            return result
        # Middleware is the application's code and may raise anything.
        except BaseException as fault:
            observers.note_in(seen, fault)
            if isinstance(fault, errors.UpstreamError):
                # A protocol error of a mounted server may quote arguments.
                told = (
                    f"protocol error {fault.code}"
                    if isinstance(fault, errors.UpstreamProtocolError)
                    else fault
                )
                extra = observers.extra_of(call, context, fault.upstream)
                _log.info("%s failed: %s", in_log(call.name), in_log(told), extra=extra)
            if (result := _answer(fault, call, raising and route is None)) is None:
                raise
            return result
        finally:
            if seen is not None and token is not None:
                observers.end_observation(seen, token, self._listeners, sent, context, result)
                # Timers keep the variables of the call until they are due, and a fault has the frames of it.
                seen.fault = None


def _answer(fault: BaseException, call: ToolCall, raising: bool) -> ToolResult | None:
    if isinstance(
        fault, (errors.UnknownToolError, errors.UpstreamProtocolError, errors.ClientCapabilityError)
    ):
        return None
    if isinstance(fault, errors.ToolsetError):
        return None if raising else error_result(fault)
    if not isinstance(fault, (Exception, SystemExit, CancelledError)) or from_outside(fault):
        return None
    # To exit would end the server for everybody; the model learns only that there was a fault.
    _log.error("a middleware of %s raised", in_log(call.name), exc_info=fault)
    return ToolResult.of_error(f"{call.name} could not be run because of a fault of the server")
