"""What a program says of the model that it lends to a mounted server; a file cannot say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import ServerSettings

if TYPE_CHECKING:
    from mcp_toolset.tools.services import ModelSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOfMount(ServerSettings):
    """The keyword `sampler` of a mount."""

    sampler: ModelSampler | None = None


SERVER_SETTINGS: Final = SamplerOfMount
