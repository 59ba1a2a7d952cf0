"""`HitIds`: the stable ids of search hits, and the tools that an id or a public name refers to.

The id of a mounted tool is made from its server's name and its id there, in the same way as a hub's public
names. So it equals the public name if the server has the usual prefix, and it stays when the server gets
another prefix. The id of a local tool is the one that its author chose, or else its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import Final

from mcp_toolset._records import dataclass
from mcp_toolset.tools.binding.selector import MAX_NEAR
from mcp_toolset.tools.core.names import mounted_name, prefix_from, public_name, qualified
from mcp_toolset.tools.core.result import encodable
from mcp_toolset.tools.toolsets.toolset import chosen_id
from mcp_toolset.tools.view.view import ToolBinding

LONGEST_ID: Final = 200
"""The largest length of an id in a catalog."""


_NEAR: Final = 0.6
"""The least similarity, from 0 to 1, of an unknown id to another id that is then suggested."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The ids of one tool: `short` unless another tool has it too, else `full`."""

    binding: ToolBinding
    short: str
    full: str

    @property
    def is_local(self) -> bool:
        return not self.binding.source

    def is_of(self, binding: ToolBinding) -> bool:
        known = self.binding
        return (known.source, known.tool_id, known.definition.name) == (
            binding.source,
            binding.tool_id,
            binding.definition.name,
        ) and known.origin is binding.origin


class HitIds:
    """The ids of the tools of one catalog."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._names: dict[str, set[str]] = {}

    def add(self, bindings: Iterable[ToolBinding]) -> None:
        """Add tools; a tool with the public name of an earlier one replaces it."""
        for binding in bindings:
            known = self._known.get(binding.name)
            if known is not None and known.is_of(binding):
                continue
            self.remove([binding.name])
            known = self._known[binding.name] = _known(binding)
            for id in (known.short, known.full):
                self._names.setdefault(id, set()).add(binding.name)

    def remove(self, names: Iterable[str]) -> None:
        """Remove tools by their public names; unknown names are ignored."""
        for name in names:
            known = self._known.pop(name, None)
            for id in () if known is None else {known.short, known.full}:
                self._names[id].discard(name)
                if not self._names[id]:
                    del self._names[id]

    def id_of(self, name: str) -> str:
        """The id of the tool with a public name, unique in the catalog."""
        known = self._known[name]
        return next((id for id in (known.short, known.full) if self._having(id) == {name}), name)

    def spellings(self, name: str) -> set[str]:
        """Everything by which a tool can be requested, given its public name."""
        known = self._known[name]
        return {name, known.short, known.full}

    def named(self, text: str, sees: Callable[[str], bool] = lambda name: True) -> list[str]:
        """The public names of the tools that an id or a public name refers to; several if it is ambiguous.

        Args:
            text: The id or name in the request.
            sees: Whether the caller may know of the tool with a public name.
        """
        having = sorted(name for name in self._having(text) if sees(name))
        # The host chooses local names: the tool that has one now wins over tools that had it before.
        if text in having and all(self._known[name].is_local for name in having):
            return [text]
        return having

    def near(self, text: str, names: Iterable[str]) -> list[str]:
        """The ids that may have been meant, the likeliest first, among tools given by public name."""
        alike = SequenceMatcher(b=text.casefold(), autojunk=False)
        found: list[tuple[float, str]] = []
        for name in names:
            for spelling in self.spellings(name):
                alike.set_seq1(spelling.casefold())
                # The bounds cost a tenth of the ratio, and most names are unlike.
                if alike.real_quick_ratio() < _NEAR or alike.quick_ratio() < _NEAR:
                    continue
                if (ratio := alike.ratio()) >= _NEAR:
                    found.append((-ratio, self.id_of(name)))
        return list(dict.fromkeys(id for _, id in sorted(found)))[:MAX_NEAR]

    def _having(self, text: str) -> set[str]:
        """The public names of the tools that can be requested by a text."""
        return self._names.get(text, set[str]()) | ({text} & self._known.keys())


def _known(binding: ToolBinding) -> _Known:
    own = binding.own_id
    if own.rstrip("@").endswith(f"@{binding.asked or binding.name}"):
        # One tool with several names: only the names tell its places apart.
        return _Known(binding, binding.name, binding.name)
    if binding.source:
        short = mounted_name(prefix_from(binding.source), own)
        return _Known(binding, short, qualified(short, f"{binding.source}\n{own}"))
    return _Known(binding, _usable(chosen_id(binding) or binding.definition.name), _usable(own))


def _usable(id: str) -> str:
    return encodable(id) if len(id) <= LONGEST_ID else public_name(id)
