"""Policy objects: classes whose methods are hooks, named after their tools."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset._rule import rules_among
from mcp_toolset.errors import DefinitionError

HookKind = Literal["execution", "description", "result"]

_FORMS: Final[tuple[tuple[str, HookKind], ...]] = (
    ("_description_hook", "description"),
    ("_result_hook", "result"),
    ("_hook", "execution"),
)
"""Suffixes of method names, the most specific first."""


@dataclass(frozen=True, slots=True)
class PolicyHook:
    """A hook that a policy object has for one tool."""

    tool: str
    kind: HookKind
    function: Any


def policy_hooks(policy: object) -> list[PolicyHook]:
    """The hooks of a policy object: `weather_hook`, `weather_description_hook`, `weather_result_hook`.

    Names that start with an underscore, and data whose name does not end in `_hook`, are ignored.
    """
    if isinstance(policy, type):
        raise DefinitionError(f"a policy is an object: register {policy.__name__}(), not the class")
    shown = type(policy).__name__
    found = [_read(policy, name, shown) for name in _candidates(policy)]
    if not found:
        raise DefinitionError(f"policy {shown} has no hook; name its methods `<tool>_hook` or alike")
    return found


def _candidates(policy: object) -> Iterator[str]:
    for name in dir(policy):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(policy, name)
        is_method = isinstance(member, FunctionType | staticmethod | classmethod)
        if (
            name.endswith(("_hook", "_hooks"))
            or any(rules_among(member))
            or (is_method and not inspect.ismodule(policy))
        ):
            yield name


def _read(policy: object, name: str, shown: str) -> PolicyHook:
    function: Any = getattr(policy, name)
    for ending, kind in _FORMS:
        tool = name.removesuffix(ending)
        if tool != name and callable(function):
            return PolicyHook(tool, kind, function)
    forms = ", ".join(f"<tool>{ending}" for ending, _ in _FORMS)
    raise DefinitionError(
        f"policy {shown}: {name} is not a hook; name it {forms}, or begin it with an underscore"
    )
