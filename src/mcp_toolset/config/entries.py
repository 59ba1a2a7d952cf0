"""The check of the parts of a file; what is wrong with their keys is told in one line each.

Keys of other clients are ignored; see `keys`. The descriptions of the keys are the remedies in the errors.
What a key means is in `schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, TypeVar, cast

from pydantic_core import ValidationError

from mcp_toolset._index import every_key, missing_keys, owners, rule_keys
from mcp_toolset.config import keys
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import ServerEntry, Table, ToolsetSection, keys_of
from mcp_toolset.errors import ConfigError

WRONG_PLACE: Final = "is in the wrong place, where it has no effect"

_Model = TypeVar("_Model", bound=Table)


def null_rule(place: Place) -> ConfigError:
    return place.error("is null, so it would protect nothing", "give it a value, or remove it")


def validated(model: type[_Model], data: object, place: Place) -> _Model:
    if not isinstance(data, dict):
        raise place.error("must be an object", "write it as { … }")
    table = cast("dict[str, object]", data)
    if unsaid := [one for one in table if table[one] is None and one in keys.NEVER_NULL]:
        raise null_rule(place.at(unsaid[0]))
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    # A key that is misspelt may be the one that is missing.
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    named = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        right = keys.misplaced(named, holder=place.path)
        moved = f"move it to `{right}`" if right else ""
        known = known_keys(model)
        every = "use one of " + ", ".join(f"`{key}`" for key in known)
        mend = keys.did_you_mean(named, known) or moved or every
        cause = "unknown option"
    else:
        cause = first["msg"].removeprefix("Input ").lower()
        mend = f"write `{named}` as {_descriptions(model)[named]}"
    raise place.at(*first["loc"]).error(cause, mend, len(problems) - 1)


def server_keys(table: Mapping[str, object], place: Place) -> list[str]:
    if missing := [one for one in table if one in missing_keys()]:
        raise place.at(missing[0]).error("is not part of this installation", "install mcp-toolset again")
    known = {*known_keys(ServerEntry), *keys.CLIENT_KEYS}
    unknown = keys.unknown_keys(table, known)
    for written in unknown:
        # Our keys come first: they protect the user.
        meant = keys.synonym(written, table[written]) or keys.nearest(written, known_keys(ServerEntry))
        meant = meant or keys.nearest(written, keys.CLIENT_KEYS)
        if meant is not None:
            raise place.at(written).error("unknown key", f"did you mean `{meant}`?")
        right = keys.misplaced(written) or ""
        if right.startswith(keys.GUARDS):
            own = right.split(".")[1] in ("permissions", *rule_keys()) and ".for." not in f"{right}."
            moved = "mcpServers.NAME" + right.removeprefix("toolset") if own else right
            raise place.at(written).error(WRONG_PLACE, f"move it to `{moved}`")
    return unknown


def known_keys(model: type[Table]) -> list[str]:
    """The keys of a part, those of extensions among them."""
    own = list(_descriptions(model))
    if model is ToolsetSection:
        return [*own, *every_key()]
    return [*own, *owners("entry")] if model is ServerEntry else own


@cache
def _descriptions(model: type[Table]) -> dict[str, str]:
    return {one.alias or name: one.description for name, one in keys_of(model).items()}
