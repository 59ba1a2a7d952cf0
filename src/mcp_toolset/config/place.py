"""`Place`: where in which file a problem is, so that every error says it in the same form."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from mcp_toolset.errors import ConfigError

__all__ = ["Place"]

_PLAIN_KEY = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A value inside a JSON file: `mcpServers.git.args[1]` in `source`."""

    source: str
    steps: tuple[str | int, ...] = ()

    def at(self, *steps: str | int) -> Place:
        """The place of a member or item below this one."""
        return Place(self.source, self.steps + steps)

    @property
    def path(self) -> str:
        """The path as a reader writes it; empty for the whole file."""
        return "".join(_written(step) for step in self.steps).removeprefix(".")

    def error(self, cause: str, mend: str) -> ConfigError:
        """An error of one line: file, place, cause, remedy. The caller keeps values out of it."""
        where = f"{self.source}: {self.path}" if self.steps else self.source
        return ConfigError(" ".join(f"{where}: {cause}; {mend}".splitlines()))


def _written(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step)}]"
