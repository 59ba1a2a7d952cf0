"""`KeyPlaces`: where the tools of a mounted server are told the key by which a repeat of a call is known.

A key in an argument is not the model's to choose: models do not see the argument.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, cast
from uuid import uuid4

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding import Executor, ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.transform import arrange, hide

META: Final = "_meta."
ARGUMENTS: Final = "arguments."
_log = logging.getLogger("mcp_toolset.tools")


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """The step that tells each tool of a server the key of a call.

    Attributes:
        server: The name of the server, for the log.
        places: `_meta.NAME` or `arguments.NAME`, by patterns of the server's own names for its tools.
    """

    server: str
    places: Mapping[str, str]

    def __call__(self, binding: ToolBinding) -> ToolBinding:
        """The tool that is told the key of each call; unchanged if there is no place for it."""
        tool = binding.definition.name
        fitting = [one for one in self.places if one == tool or fnmatchcase(tool, one)]
        if not fitting:
            return binding
        pattern = max(fitting, key=lambda one: (one == tool, len(one.replace("*", ""))))
        place = self.places[pattern]
        if place.startswith(META):
            run = partial(_in_meta, place.removeprefix(META), binding.execute)
            return replace(binding, execute=run)
        try:
            return _in_argument(binding, place.removeprefix(ARGUMENTS))
        except DefinitionError as fault:
            if pattern == tool:
                _log.warning("%s: no key is sent with its calls: %s", in_log(self.server), in_log(fault))
            return binding


def _in_argument(binding: ToolBinding, name: str) -> ToolBinding:
    shown = arrange(binding, {name: hide(value=str(uuid4()))})
    assert shown.arguments is not None
    return replace(
        binding,
        definition=shown.definition,
        arguments=shown.arguments,
        execute=partial(_filled, binding, name),
        prepare=None,
    )


async def _filled(binding: ToolBinding, name: str, call: ToolCall, context: ToolContext) -> ToolResult:
    call = call.with_arguments({**call.arguments, name: _key(call)})
    return await binding.execute(call if binding.prepare is None else binding.prepare(call, context), context)


async def _in_meta(name: str, execute: Executor, call: ToolCall, context: ToolContext) -> ToolResult:
    meta = cast("Mapping[str, Any]", call.meta or {})
    return await execute(replace(call, meta={**meta, name: _key(call)}), context)


def _key(call: ToolCall) -> str:
    """The key of a call; without a journal each call has another one."""
    return call.key or str(uuid4())
