"""`Sandbox`: the protocol of a sandbox: a snippet stops at each call of a tool until the call is answered."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import fields
from typing import Any, Literal, Protocol

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass
from mcp_toolset.tools.python_stub import Functions


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """The limits of each run; see docs/code-mode.md.

    Attributes:
        max_compute_seconds: Seconds that the code may compute; waiting for tools does not count.
        timeout: Seconds that a run may take in all; waiting for a user's answer does not count.
        max_memory_mb: Megabytes that the code may hold.
        max_calls: Calls of tools.
        max_stops: Times that the code may stop for something of the server: a call, a wait, an import.
        max_parallel: Calls that run at once; more wait.
        max_printed: Characters that the code may print.
        max_value_bytes: Bytes of JSON of the value that come back whole; a larger value comes as a preview.
        workers: Processes of the sandbox, and so runs at once; more wait.
    """

    max_compute_seconds: float = 10.0
    timeout: float = 60.0
    max_memory_mb: int = 64
    max_calls: int = 50
    max_stops: int = 200
    max_parallel: int = 8
    max_printed: int = 20_000
    max_value_bytes: int = 20_000
    workers: int = 8

    def __post_init__(self) -> None:
        require_positive(
            "CodeMode", **{field.name: getattr(self, field.name) for field in fields(CodeLimits)}
        )


FaultKind = Literal["failed", "max_compute_seconds", "max_memory_mb", "max_stops", "max_printed", "died"]
"""Why a snippet has ended early: its own exception, a limit by its name, a dead sandbox."""


@dataclass(frozen=True, slots=True)
class Program:
    """A snippet to run.

    Attributes:
        code: The Python code.
        functions: The functions that the code can call; it sees no other name of the server.
        mode: Its limits.
        state: The value of `Execution.dump` to continue from.
        printed: The text printed until then.
    """

    code: str
    functions: Functions
    mode: CodeLimits
    state: bytes | None = None
    printed: str = ""


@dataclass(frozen=True, slots=True)
class Called:
    """One call of a function by the snippet; `id` is unique within the run."""

    id: int
    function: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """The answer to a call: a value, or the message of a `RuntimeError` that is raised in the snippet."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """The snippet waits.

    Attributes:
        fresh: The calls since the last pause.
        waiting: The ids of all calls that have no answer yet.
    """

    fresh: tuple[Called, ...]
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The snippet has run to its end; `value` is the value of its last expression, as JSON."""

    value: str


class SandboxFault(Exception):
    """The snippet has ended early.

    Attributes:
        kind: Why.
        text: The traceback within the snippet, or another description of the failure.
    """

    def __init__(self, kind: FaultKind, text: str) -> None:
        super().__init__(text)
        self.kind: FaultKind = kind
        self.text = text


class Execution(Protocol):
    """One run of a snippet."""

    @property
    def printed(self) -> str:
        """The text that the snippet has printed so far."""
        ...

    async def step(self, answers: Mapping[int, CallAnswer]) -> Paused | Ended:
        """Begin, or go on with answers to some calls, by id.

        Raises:
            SandboxFault: the snippet has ended early.
        """
        ...

    def dump(self) -> bytes:
        """The paused run, for another execution to continue. It is trusted data: keep it in this process."""
        ...


class Sandbox(Protocol):
    """Runs snippets in isolation: a snippet can reach only the functions of its `Program`."""

    def running(self, program: Program) -> AbstractAsyncContextManager[Execution]:
        """A run of a program in a separate sandbox, which is removed when the block ends.

        Raises:
            SandboxFault: no sandbox could be started.
        """
        ...

    async def close(self) -> None:
        """End every process; a later run starts one again."""
        ...
