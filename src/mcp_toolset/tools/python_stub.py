"""`python_stub`: a tool as a typed Python function, for models that write code; `Functions`: several."""

from __future__ import annotations

import builtins
import hashlib
import keyword
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import list_of, mapping_of

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z_]+")
_SAFE: Final = re.compile(r"[A-Za-z][0-9A-Za-z_]*")
_MODULES: Final = frozenset({"asyncio", "collections", "datetime", "json", "math", "random", "re", "typing"})
_TAKEN: Final = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | _MODULES
"""Names that mean something else in a snippet: a function of such a name would be shadowed."""

_MARKS: Final = (4, 8, 16, 64)
"""Lengths of the digest in a name that several tools would have: the first with which all differ."""


def python_name(name: str) -> str:
    """A Python name made of the tool's name alone: `get-weather` is `get_weather`, `list` is `list_`."""
    plain = _UNSAFE.sub("_", name).strip("_") if not _SAFE.fullmatch(name) else name
    if not any(map(str.isalpha, plain)):
        return f"tool_{_digest(name)}"
    if not plain[0].isalpha():
        plain = f"tool_{plain}"
    return f"{plain}_" if plain in _TAKEN else plain


class Functions:
    """Public names of tools by the names of their functions; `ambiguous` names have several instead."""

    def __init__(self, names: Iterable[str]) -> None:
        wanted: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            wanted.setdefault(python_name(name), []).append(name)
        self.tools: dict[str, str] = {plain: own[0] for plain, own in wanted.items() if len(own) == 1}
        self.ambiguous: dict[str, Mapping[str, str]] = {}
        for plain, own in wanted.items():
            if len(own) > 1:
                marked = _marked(plain, own, wanted.keys() | self.tools.keys())
                self.ambiguous[plain] = marked
                self.tools |= marked


def _marked(plain: str, names: Collection[str], taken: Collection[str]) -> Mapping[str, str]:
    for length in _MARKS:
        marked = {f"{plain}_{_digest(name, length)}": name for name in names}
        if len(marked) == len(names) and not any(name in taken for name in marked):
            return marked
    return {}


def _digest(name: str, length: int = _MARKS[0]) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:length]


MAX_DEPTH: Final = 4  # Objects within objects that have types of their own; deeper ones are `dict[str, Any]`.
MAX_VALUES: Final = 12  # Values of an enumeration that are spelt out.

_PLAIN: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_ANY_OBJECT: Final = "dict[str, Any]"
_WORD: Final = re.compile(r"[^0-9A-Za-z]+")


def python_stub(name: str, definition: ToolDefinition) -> str:
    """`async def orders_list(*, month: str, limit: int = 200) -> OrdersList: ...` with its docstring.

    A parameter whose name is none in Python is named in the docstring.
    """
    function = python_name(name)
    types = _Types(_camel(function))
    schema = definition.input_schema
    required = _texts(schema.get("required"))
    shown: list[str] = []
    odd: list[str] = []
    for each, value in sorted(
        mapping_of(schema.get("properties")).items(), key=lambda one: one[0] not in required
    ):
        kind = types.of(value, _camel(each), schema)
        if not each.isidentifier() or keyword.iskeyword(each):
            odd.append(f"**{{{each!r}: …}}: {kind}")
            continue
        default = mapping_of(value).get("default", ...)
        shown.append(
            f"{each}: {kind}"
            + ("" if each in required else f" = {'...' if default is ... else repr(default)}")
        )
    output = definition.output_schema
    result = "Any" if output is None else types.of(output, "", output)
    parameters = f"*, {', '.join(shown)}" if shown else ""
    if odd:
        parameters = f"{parameters}, **more: Any" if parameters else "**more: Any"
    lines = [*types.classes.values(), f"async def {function}({parameters}) -> {result}:"]
    return "\n".join([*lines, *_docstring(definition, schema, odd), "    ..."])


class _Types:
    """The types of one stub; objects with known fields become classes."""

    def __init__(self, prefix: str) -> None:
        self.classes: dict[str, str] = {}
        self._prefix = prefix
        self._within: list[str] = []

    def of(self, schema: object, name: str, root: Mapping[str, Any]) -> str:
        keywords = mapping_of(schema)
        reference = keywords.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference, root)
        values = [keywords["const"]] if "const" in keywords else list_of(keywords.get("enum"))
        if 0 < len(values) <= MAX_VALUES and all(
            isinstance(value, str | int | bool | None) for value in values
        ):
            return f"Literal[{', '.join(map(repr, values))}]"
        kinds = keywords.get("type")
        if several := list_of(kinds):
            return self._either([{**keywords, "type": one} for one in several], name, root)
        branches = list_of(keywords.get("anyOf")) or list_of(keywords.get("oneOf"))
        if branches:
            return self._either(branches, name, root)
        if kinds == "array":
            return (
                f"list[{self.of(keywords.get('items'), name, root)}]" if "items" in keywords else "list[Any]"
            )
        if kinds == "object" or "properties" in keywords:
            return self._object(keywords, name, root)
        return _PLAIN.get(str(kinds), "Any")

    def _either(self, branches: list[Any], name: str, root: Mapping[str, Any]) -> str:
        named = [self.of(branch, f"{name}{at or ''}", root) for at, branch in enumerate(branches)]
        return "Any" if "Any" in named else " | ".join(dict.fromkeys(named)) or "Any"

    def _referred(self, reference: str, root: Mapping[str, Any]) -> str:
        target: object = root
        for part in reference.removeprefix("#/").split("/"):
            target = mapping_of(target).get(part)
        if not reference.startswith("#/") or target is None or reference in self._within:
            return _ANY_OBJECT if reference in self._within else "Any"
        self._within.append(reference)
        try:
            return self.of(target, _camel(reference.rpartition("/")[2]), root)
        finally:
            self._within.pop()

    def _object(self, keywords: Mapping[str, Any], name: str, root: Mapping[str, Any]) -> str:
        fields = mapping_of(keywords.get("properties"))
        if not fields or len(self._within) >= MAX_DEPTH or not all(map(str.isidentifier, fields)):
            extra = keywords.get("additionalProperties")
            return f"dict[str, {self.of(extra, name, root)}]" if mapping_of(extra) else _ANY_OBJECT
        called = self._prefix + name
        required = _texts(keywords.get("required"))
        self._within.append(called)
        lines = [f"class {called}(TypedDict):"]
        for each, value in fields.items():
            kind = self.of(value, f"{name}{_camel(each)}", root)
            lines.append(f"    {each}: {kind if each in required else f'NotRequired[{kind}]'}")
        self._within.pop()
        self.classes[called] = "\n".join(lines)
        return called


def _docstring(definition: ToolDefinition, schema: Mapping[str, Any], odd: list[str]) -> list[str]:
    told = [(definition.description or definition.title or "").strip()]
    for each, value in mapping_of(schema.get("properties")).items():
        if isinstance(description := mapping_of(value).get("description"), str) and description.strip():
            told.append(f"{each}: {' '.join(description.split())}")
    told += [f"Pass {one}" for one in odd]
    text = "\n".join(part for part in told if part).replace("\\", "\\\\").replace('"""', "'''")
    if not text:
        return []
    end = " " if text.endswith('"') else ""
    lines = f'"""{text}{end}"""'.split("\n")
    return [f"    {line}" if line else "" for line in lines]


def _camel(text: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in _WORD.split(text) if word)


def _texts(value: object) -> frozenset[str]:
    return frozenset(one for one in list_of(value) if isinstance(one, str))
