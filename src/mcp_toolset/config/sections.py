"""pydantic models of the parts that few configurations have; each is loaded for a file that has it.

The descriptions of the fields are the remedies in the errors of `entries.validated`.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mcp_toolset.config.entries import LIST_OF_TEXTS
from mcp_toolset.config.jsonc import Place

__all__ = [
    "AuditEntry",
    "BreakerEntry",
    "CallersEntry",
    "CodeEntry",
    "Entry",
    "InputEntry",
    "LearningEntry",
    "LargeResultsEntry",
]

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Some = Annotated[list[str], Field(min_length=1)]
_Names = tuple[str, ...] | None
_TEXT = "a string"
_SECONDS = "a positive number of seconds"
_Count = Annotated[int, Field(gt=0, strict=True)]
_COUNT = "a positive whole number"


class Entry(BaseModel):
    """A part of a configuration file; its values stay out of errors."""

    # Pydantic would quote the offending input, which may be a secret.
    model_config = ConfigDict(
        frozen=True, extra="ignore", coerce_numbers_to_str=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        table = cast("dict[str, Any]", data)
        return {key: value for key, value in table.items() if value is not None}


class CallersEntry(Entry):
    """The callers that a part of a configuration is for."""

    model_config = ConfigDict(extra="forbid")

    principals: _Some | None = Field(None, description=LIST_OF_TEXTS + ", the names of callers")
    roles: _Some | None = Field(None, description=LIST_OF_TEXTS)
    scopes: _Some | None = Field(None, description=LIST_OF_TEXTS)

    def who(self, place: Place) -> tuple[_Names, _Names, _Names]:
        """The names, roles and scopes.

        Raises:
            ConfigError: there are none.
        """
        if self.principals is None and self.roles is None and self.scopes is None:
            raise place.error("does not say for which callers it is", "add `principals`, `roles` or `scopes`")
        return _tuple(self.principals), _tuple(self.roles), _tuple(self.scopes)


def _tuple(names: list[str] | None) -> _Names:
    return None if names is None else tuple(names)


class LargeResultsEntry(Entry):
    """What is done with results that are too long for a model."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(20_000, gt=0, strict=True, description="a positive number of characters")
    preview: int | None = Field(None, gt=0, strict=True, description="a positive number of characters")
    memory: int = Field(64_000_000, gt=0, strict=True, description="a positive number of characters")
    lifetime: _Seconds = Field(3600.0, description=_SECONDS)


class CodeEntry(Entry):
    """The limits of code mode in the `toolset` section; `CodeMode` says what each means."""

    model_config = ConfigDict(extra="forbid")

    seconds: _Seconds | None = Field(None, description=_SECONDS)
    timeout: _Seconds | None = Field(None, description=_SECONDS)
    memory_mb: _Count | None = Field(None, description=_COUNT)
    calls: _Count | None = Field(None, description=_COUNT)
    suspensions: _Count | None = Field(None, description=_COUNT)
    parallel: _Count | None = Field(None, description=_COUNT)
    printed: _Count | None = Field(None, description=_COUNT)
    value: _Count | None = Field(None, description=_COUNT)
    workers: _Count | None = Field(None, description=_COUNT)


class LearningEntry(Entry):
    """What search learns from use, in the `toolset` section; `SearchLearning` says what each key means."""

    model_config = ConfigDict(extra="forbid")

    path: str | None = Field(None, min_length=1, description="the path of a file, as a string")
    most: float = Field(0.15, gt=0, lt=0.2, description="a number above 0 and below 0.2")
    half_life: float = Field(30 * 86_400, gt=0, allow_inf_nan=False, description=_SECONDS)
    tenants: int = Field(100, gt=0, strict=True, description=_COUNT)
    pairs: int = Field(2_000, gt=0, le=5_000, strict=True, description="a whole number from 1 to 5000")


class AuditEntry(Entry):
    """The audit log of the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, description="the path of a file, as a string")
    max_bytes: int = Field(100_000_000, gt=0, description="a positive number of bytes")
    keep: int = Field(10, gt=0, description="how many full files are kept, at least 1")
    key: str | None = Field(None, min_length=16, description="at least 16 characters, such as `${AUDIT_KEY}`")


class InputEntry(Entry):
    """One of VS Code's `inputs`: only its id and default can be used without a user to ask."""

    id: str = Field(description=_TEXT)
    default: str | None = Field(None, description=_TEXT)


class BreakerEntry(BaseModel):
    """When a server is not called any more, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    failures: int = Field(5, gt=0, strict=True, description="a positive whole number")
    seconds: float = Field(
        30, gt=0, strict=True, allow_inf_nan=False, description="a positive number of seconds"
    )
