"""`Descriptions`: replacement texts for some tools, as a value.

```python
short = Descriptions({"search": "Search the shop.", "order": "Order an article."})
polite = short | {"order": "Order an article. Ask the user first."}
view = await view.with_texts(polite)          # one view
serve(tools.described(polite))               # a toolset
serve(tools, rules=Rules(descriptions=polite))
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.names import check_prefix, public_name
from mcp_toolset.tools.toolsets.named_step import NamedStep
from mcp_toolset.tools.toolsets.verbs import redescribed
from mcp_toolset.tools.view.tool_names import NameUse, use_of
from mcp_toolset.tools.view.unbound import NameReport

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.binding.selector import ToolSelector
    from mcp_toolset.tools.toolsets.named_step import BySelector
    from mcp_toolset.tools.view.view import ToolView

__all__ = ["Descriptions"]


class Descriptions(Mapping["ToolSelector", str]):
    """An immutable mapping from tools to the texts that replace their descriptions."""

    __slots__ = ("_report", "_step", "_texts")

    def __init__(self, texts: BySelector[str] | None = None) -> None:
        """Texts by public name, pattern or tool.

        Raises:
            DefinitionError: a key is not a selector, or a text is not a string.
        """
        self._texts: dict[ToolSelector, str] = {}
        for selector, text in (texts or {}).items():
            if use_of(selector, "descriptions") is None or not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DefinitionError(f"descriptions are texts by tool, not {selector!r}: {text!r}")
            self._texts[selector] = text
        self._step = NamedStep("descriptions", self._texts, redescribed)
        self._report = NameReport()

    def __getitem__(self, selector: ToolSelector) -> str:
        """The text for a selector."""
        return self._texts[selector]

    def __iter__(self) -> Iterator[ToolSelector]:
        """The selectors."""
        return iter(self._texts)

    def __len__(self) -> int:
        """The number of texts."""
        return len(self._texts)

    def __or__(self, other: BySelector[str]) -> Descriptions:
        """Both; of two texts for one selector, the later wins."""
        return Descriptions({**self._texts, **dict(other.items())})

    def prefixed(self, prefix: str) -> Descriptions:
        """The same texts for a toolset that is `.prefixed(prefix)`.

        Raises:
            DefinitionError: the prefix cannot start a tool's name.
        """
        check_prefix(prefix)
        named = {key: key if not isinstance(key, str) else public_name(key, prefix=prefix) for key in self}
        return Descriptions({named[key]: text for key, text in self._texts.items()})

    def uses(self) -> list[NameUse]:
        """The uses of the texts' selectors."""
        return [use for one in self._texts if (use := use_of(one, "descriptions")) is not None]

    def of(self, bindings: list[ToolBinding]) -> list[ToolBinding]:
        """The tools with these texts; names are not checked."""
        step = self._step.among(bindings)
        return [done for one in bindings if (done := step(one)) is not None]

    async def describe(self, view: ToolView) -> list[ToolBinding]:
        """The tools of a view with these texts; see `ToolView.with_texts`."""
        self._report.look(self.uses(), view.names, view.known_tools)
        return self.of(list(view.values()))
