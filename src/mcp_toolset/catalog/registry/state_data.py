"""Parse the JSON of a `RegistryState`, with pydantic models of its fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from mcp_toolset.tools.definition import MAX_NAME_LENGTH

_Name = Annotated[str, Field(pattern=rf"^[A-Za-z0-9_-]{{0,{MAX_NAME_LENGTH}}}$")]


class _EntryData(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    source: str
    id: str = Field(min_length=1)
    name: _Name = ""
    asked: str = ""
    member: StrictBool | None = None


class _StateData(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    format: Literal["mcp-toolset/state"]
    generation: StrictInt = Field(ge=0)
    tools: list[_EntryData]


def generation_and_entries(data: Any) -> tuple[int, list[dict[str, Any]]]:
    try:
        read = _StateData.model_validate(data)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
    return read.generation, [entry.model_dump() for entry in read.tools]
