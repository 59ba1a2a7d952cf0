"""`CodeMode`: models may run code that calls granted tools, within limits, in a sandbox."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.code.sandbox import CodeLimits, Sandbox

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.code.code_tools import CodeTools
    from mcp_toolset.tools.tool import Tool

_log = logging.getLogger("mcp_toolset.server")


@dataclass(frozen=True)
class CodeMode(CodeLimits, Extension):
    """The limits of each run, and the sandbox.

    Attributes:
        sandbox: A sandbox to use in place of the one from the extra `code`.
    """

    key: ClassVar = "code"

    _: KW_ONLY
    sandbox: Sandbox | None = None

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self | None:
        """See `Extension`; the keyword is `True` or limits."""
        if said is not None and said is not True:
            raise DefinitionError(f"code takes True, False or CodeMode(…), not {said!r}")
        return super().of(None, stated, host)

    def bind(self, host: Host) -> Self:
        # What is given may be asked for its limits alone.
        from mcp_toolset.extensions.code.code_tools import CodeTools

        bound = replace(self)
        object.__setattr__(bound, "host", host)
        object.__setattr__(bound, "_tools", CodeTools(bound, bound.sandbox, host))
        return bound

    def catalog_tools(self) -> Sequence[Tool[..., Any]]:
        return self._made.tools()

    def lifespan(self) -> None:
        if self.host.need(SuspendedStore) is None or not self.host.grants.ends_with_process:
            return
        _log.warning(
            "runs of code that wait for an answer do not go on after a restart, as grants are in "
            "memory; keep them in a file, as by `--grants FILE`"
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._made.close()

    @property
    def _made(self) -> CodeTools:
        return self.__dict__["_tools"]


EXTENSION = CodeMode
