"""`ScriptedServer`: a server for tests whose tools give scripted answers; `CallRecorder` records calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any, TypeAlias

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.middleware import CallNext
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.tools.binding import Executor, ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import copied
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import Each

__all__ = ["Answer", "CallRecorder", "RecordedCall", "ScriptedServer"]

Answer: TypeAlias = ToolResult | Exception | str | Mapping[str, Any] | list[Any] | int | float | bool | None
"""The answer of a scripted tool: a text, structured content, a whole result, or an error that it raises."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call that a `CallRecorder` has seen.

    Attributes:
        name: The public name of the tool.
        arguments: The arguments as they came to the recorder.
    """

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        """As Python shows a call."""
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.arguments.items())})"


@dataclass(eq=False)
class CallRecorder:
    """Middleware that records calls, with assertions about them.

    Put it first, and it sees the arguments of the caller; last, and it sees what other middleware passes on.
    A call of an unknown tool, or one with arguments that do not fit, does not come to middleware.

    Attributes:
        calls: The calls, in the order in which they came.
    """

    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Record a call and pass it on."""
        self.record(call)
        return await next()

    def record(self, call: ToolCall) -> None:
        """Record a call."""
        self.calls.append(RecordedCall(call.name, copied(call.arguments)))

    def of(self, name: str, /, **arguments: Any) -> list[RecordedCall]:
        """The calls of a tool that have these arguments, perhaps among others."""
        wanted = arguments.items()
        return [call for call in self.calls if call.name == name and wanted <= call.arguments.items()]

    def assert_called(self, name: str, /, **arguments: Any) -> None:
        """Fail unless a tool was called with these arguments, perhaps among others."""
        if not self.of(name, **arguments):
            raise self._failure(f"{RecordedCall(name, arguments)} was not called")

    def assert_called_once(self, name: str, /, **arguments: Any) -> None:
        """Fail unless a tool was called once with these arguments, perhaps among others."""
        if (count := len(self.of(name, **arguments))) != 1:
            raise self._failure(f"{RecordedCall(name, arguments)} was called {count} times, not once")

    def assert_not_called(self, name: str | None = None, /, **arguments: Any) -> None:
        """Fail if a tool was called with these arguments; without a name, if any tool was called."""
        calls = self.calls if name is None else self.of(name, **arguments)
        if calls:
            raise self._failure(f"{calls[0]} was called")

    def assert_order(self, *names: str) -> None:
        """Fail unless the recorded calls are those of these tools, in this order."""
        if [call.name for call in self.calls] != [*names]:
            raise self._failure(f"the calls are not {', '.join(names) or 'none'}")

    def _failure(self, what: str) -> AssertionError:
        seen = "\n".join(f"  {call}" for call in self.calls) or "  none"
        return AssertionError(f"{what}; the calls were:\n{seen}")


class ScriptedServer(ToolsetServer):
    """A server whose tools give scripted answers, in place of a server that tests cannot have.

    Mount it as the real server: `RemoteToolset(ScriptedServer("crm", "find"), name="crm")`.

    Attributes:
        calls: The recorded calls.
    """

    def __init__(self, name: str, *tools: str | Tool[..., Any], **options: Any) -> None:
        """Describe the server.

        Args:
            name: The server's name.
            *tools: Names of tools, which take any arguments; or tools, which keep their definitions, and run
                until an answer is scripted for them.
            options: Those of `ToolsetServer`.
        """
        self.calls = CallRecorder()
        self._answers: dict[str, list[Answer]] = {}
        members = [_unscripted(tool) if isinstance(tool, str) else tool for tool in tools]
        scripted = Toolset(*members, name=name).through(Each(self._scripted))
        super().__init__(scripted, name=name, **options)

    def script(self, name: str, *answers: Answer) -> None:
        """Answer the calls of a tool with these answers, one after the other; the last one stays.

        Without answers, the script of the tool is removed.

        Raises:
            UnknownToolError: the server has no such tool.
        """
        if name not in {binding.name for binding in self.toolset.bindings()}:
            raise UnknownToolError(name)
        self._answers[name] = [*answers]

    def _scripted(self, binding: ToolBinding) -> ToolBinding:
        return replace(binding, execute=partial(self._answer, binding.execute))

    async def _answer(self, execute: Executor, call: ToolCall, context: ToolContext) -> ToolResult:
        self.calls.record(call)
        answers = self._answers.get(call.name)
        if not answers:
            return await execute(call, context)
        return _result(answers.pop(0) if len(answers) > 1 else answers[0])


def _unscripted(name: str) -> Tool[..., Any]:
    async def handler(arguments: Mapping[str, Any]) -> str:
        raise LookupError(f"no answer is scripted for {name}; call script({name!r}, …)")

    return Tool.from_schema(name, {"type": "object"}, handler, description=f"A scripted tool: {name}.")


def _result(answer: Answer) -> ToolResult:
    match answer:
        case Exception():
            raise answer
        case ToolResult():
            return answer
        case str():
            return ToolResult.of_text(answer)
        case _:
            return ToolResult.of_structured(answer)
