"""`Format`: how the servers of a client are read from its file and changed in it: JSON, TOML or YAML.

Every format keeps what it does not change. JSON is edited as text (`jsontext`), TOML with tomlkit, YAML with
ruamel.yaml, which keep comments and order.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_toolset.cli.installers import jsontext
from mcp_toolset.errors import ConfigError

__all__ = ["JSON", "TOML", "YAML", "Format"]

_Table = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """One format of files; `section` is the key of the table of servers, `source` the path for errors.

    Attributes:
        entries: The servers in a text; empty if the section or the whole text is missing.
        with_entry: The text with an entry, replaced in place or added last.
        without_entry: The text without an entry.
        concealed: The text with `***` for each value outside the named entry, and for those in its `env`.
    """

    entries: Callable[[str, str, str], Mapping[str, object]]
    with_entry: Callable[[str, str, str, object, str], str]
    without_entry: Callable[[str, str, str, str], str]
    concealed: Callable[[str, str, str], str]


JSON: Final = Format(jsontext.entries, jsontext.with_entry, jsontext.without_entry, jsontext.concealed)


@dataclass(frozen=True, slots=True)
class _Documents:
    """Texts of one format as documents that can be changed, and back."""

    load: Callable[[str, str], _Table]
    dump: Callable[[_Table], str]

    def entries(self, text: str, section: str, source: str) -> Mapping[str, object]:
        return cast("dict[str, object]", _data(self._section(self.load(text, source), section, source)))

    def with_entry(self, text: str, section: str, name: str, entry: object, source: str) -> str:
        document = self.load(text, source)
        self._section(document, section, source)
        if section not in document:
            document[section] = {}
        document[section][name] = entry
        return self.dump(document)

    def without_entry(self, text: str, section: str, name: str, source: str) -> str:
        document = self.load(text, source)
        table = self._section(document, section, source)
        if name not in table:
            return text
        del document[section][name]
        return self.dump(document)

    def concealed(self, text: str, section: str, name: str) -> str:
        document = self.load(text, "")
        _conceal(document, (section, name), ())
        return self.dump(document)

    @staticmethod
    def _section(document: _Table, section: str, source: str) -> Mapping[str, object]:
        table = document.get(section)
        if table is not None and not isinstance(table, MutableMapping):
            raise ConfigError(f"{source}: {section}: must be a table; correct the file")
        return cast("Mapping[str, object]", table or {})


def _data(node: Any) -> Any:
    """Plain data of a document's part."""
    if isinstance(node, MutableMapping):
        return {str(key): _data(value) for key, value in cast("_Table", node).items()}
    if isinstance(node, list):
        return [_data(value) for value in cast("list[Any]", node)]
    return node.unwrap() if hasattr(node, "unwrap") else node


def _conceal(node: Any, own: tuple[str, str], path: tuple[str, ...]) -> None:
    """Replace values in place, below a table or a list."""
    if isinstance(node, list):
        items: list[tuple[Any, Any]] = [*enumerate(cast("list[Any]", node))]
    else:
        items = [*node.items()]
    for key, value in items:
        place = (*path, str(key))
        if isinstance(value, MutableMapping | list):
            _conceal(value, own, place)
        elif (place[:2] != own or place[2:3] in (("env",), ("envs",))) and not (
            place[0] == own[0] and len(place) > 2 and jsontext.is_plain(place[2:])
        ):
            node[key] = "***"


def _load_toml(text: str, source: str) -> _Table:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        line, column = getattr(error, "line", None), getattr(error, "col", 0)
        raise _invalid(source, "TOML", error, line, column) from None


def _invalid(source: str, kind: str, error: Exception, line: int | None, column: int) -> ConfigError:
    """The error of a file that cannot be parsed; its library quotes the line, where a secret may be."""
    where = "" if line is None else f" in line {line}, column {column + 1}"
    return ConfigError(f"{source}: not valid {kind}: {type(error).__name__}{where}; correct the file there")


def _dump_toml(document: _Table) -> str:
    import tomlkit

    return tomlkit.dumps(document)


def _round_trip() -> Any:
    from ruamel.yaml import YAML as RoundTrip

    yaml: Any = RoundTrip()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    return yaml


def _load_yaml(text: str, source: str) -> _Table:
    from ruamel.yaml.error import YAMLError

    try:
        document: object = _round_trip().load(text)
    # The others are raised for a scalar that is none of its type, such as a date.
    except (YAMLError, ValueError, LookupError, AttributeError) as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + 1, mark.column) if mark else (None, 0)
        raise _invalid(source, "YAML", error, line, column) from None
    except RecursionError:
        raise ConfigError(f"{source}: is nested too deep; correct the file") from None
    if document is None:
        return {}
    if not isinstance(document, MutableMapping):
        raise ConfigError(f"{source}: must hold a table; correct the file")
    if _written_out(cast("object", document), {}) > _MOST_VALUES:
        raise ConfigError(
            f"{source}: its anchors (&, *) stand for more than {_MOST_VALUES} values; "
            "write the values there without anchors"
        )
    return cast("_Table", document)


def _written_out(value: object, known: dict[int, int]) -> int:
    """The number of values in a document in which each alias stands for a copy."""
    own = id(value)
    if own not in known:
        items: Iterable[object] = ()
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value).values()
        elif isinstance(value, list):
            items = cast("list[object]", value)
        known[own] = 1 + sum(_written_out(item, known) for item in items)
    return known[own]


def _dump_yaml(document: _Table) -> str:
    stream = io.StringIO()
    _round_trip().dump(document, stream)
    return stream.getvalue()


def _of(documents: _Documents) -> Format:
    return Format(documents.entries, documents.with_entry, documents.without_entry, documents.concealed)


_MOST_VALUES: Final = 100_000
"""Values of a YAML file, aliases counted as often as they stand there."""

TOML: Final = _of(_Documents(_load_toml, _dump_toml))
YAML: Final = _of(_Documents(_load_yaml, _dump_yaml))
