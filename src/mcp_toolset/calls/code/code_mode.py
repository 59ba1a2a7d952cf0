"""`CodeMode`: the limits of code that models write, and the sandbox that runs it."""

from __future__ import annotations

from dataclasses import KW_ONLY

from mcp_toolset._records import dataclass
from mcp_toolset.calls.code.sandbox import Sandbox
from mcp_toolset.calls.code.settings import CodeLimits


@dataclass(frozen=True, slots=True)
class CodeMode(CodeLimits):
    """The limits of each run, and the sandbox.

    Attributes:
        sandbox: A sandbox to use in place of the one from the extra `code`.
    """

    _: KW_ONLY
    sandbox: Sandbox | None = None
