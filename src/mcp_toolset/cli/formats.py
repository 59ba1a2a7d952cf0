"""`JSON`, `TOML` and `YAML`: edits of a client's configuration text in its format.

The text belongs to the user: an edit of JSON changes one entry and keeps comments, order and white space.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.config.jsonc import blank_comments, decode, plain_json
from mcp_toolset.errors import ConfigError

_SPACE = " \t\r\n"
_NOT_SPACE = re.compile(rf"[^{_SPACE}]")
_LINE_ENDS = re.compile(r"[ \t]*(?:\r?\n|\Z)")
_INDENT = re.compile(r"\n([ \t]+)\"")
_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')


@dataclass(frozen=True, slots=True)
class _Member:
    """`"key": value`: where the key starts, where the value starts, and just after its end."""

    key: str
    start: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class _Object:
    """An object in the text: its braces and its members."""

    start: int
    end: int
    members: tuple[_Member, ...]

    def member(self, key: str) -> _Member | None:
        # If a key occurs twice the last one counts, as in every JSON reader.
        return next((member for member in reversed(self.members) if member.key == key), None)


def entries(text: str, section: str, source: str) -> Mapping[str, object]:
    root = _decoded(text, section, source)
    return cast("dict[str, object]", root.get(section, {}))


def with_entry(text: str, section: str, name: str, entry: object, source: str) -> str:
    """The text with `entry` under `name` in `section`: replaced in place, else added last."""
    wanted = _decoded(text, section, source)
    wanted[section] = {**cast("dict[str, object]", wanted.get(section, {})), name: entry}
    body = text if text.strip(_SPACE) else "{}\n"
    root = _scan(plain_json(body), 0)
    holder = root.member(section)
    if holder is None:
        edited = _added(body, root, section, {name: entry}, 1)
    else:
        table = _scan(plain_json(body), holder.value)
        old = table.member(name)
        edited = _added(body, table, name, entry, 2) if old is None else _replaced(body, old, entry)
    return _checked(edited, wanted, section, source)


def without_entry(text: str, section: str, name: str, source: str) -> str:
    """The text without `name` in `section`; an emptied section is kept, because some clients require it."""
    wanted = _decoded(text, section, source)
    table = cast("dict[str, object]", wanted.get(section, {}))
    if name not in table:
        return text
    wanted[section] = {key: value for key, value in table.items() if key != name}
    plain = plain_json(text)
    holder = _scan(plain, 0).member(section)
    edited = _removed(text, _scan(plain, holder.value), name) if holder else text
    return _checked(edited, wanted, section, source)


def with_member(text: str, path: Sequence[str], value: object, source: str) -> str:
    """The text with a value at a path in an existing object: replaced in place, else added last.

    A value of `None` removes the member.
    """
    *holders, key = path
    wanted = _decoded(text, path[0], source)
    plain, table, inside = plain_json(text), _scan(plain_json(text), 0), cast("dict[str, Any]", wanted)
    for name in holders:
        nested, member = inside.get(name), table.member(name)
        if not isinstance(nested, dict) or member is None:
            raise ConfigError(f"{source}: {'.'.join(holders)}: is not there; correct the name")
        inside, table = cast("dict[str, Any]", nested), _scan(plain, member.value)
    old = table.member(key)
    if value is None:
        edited = text if inside.pop(key, None) is None and old is None else _removed(text, table, key)
    else:
        inside[key] = value
        depth = len(path)
        edited = _added(text, table, key, value, depth) if old is None else _replaced(text, old, value)
    return _checked(edited, wanted, path[0], source)


def is_plain(inside: Sequence[str]) -> bool:
    """True if a value at these keys of an entry may be shown: its program, arguments, type and folder."""
    is_text = inside[0] in ("command", "cmd", "type", "cwd") and len(inside) == 1
    return is_text or (inside[0] in ("args", "command") and len(inside) == 2)


def concealed(text: str, section: str, name: str) -> str:
    """The text with `***` for values outside the named entry, and in its `env`; see `is_plain`."""
    plain, path, parts, done = plain_json(text), list[str](), list[str](), 0
    key = ""
    for token in _TOKEN.finditer(plain):
        if token[0] in "{[":
            path.append(key)
        elif token[0] in "}]":
            path.pop()
        elif token[0] in ",:":
            continue
        elif plain.startswith(":", _skip(plain, token.end())):
            key = json.loads(token[0])
        elif (path[1:3] != [section, name] or path[3:4] in (["env"], ["environment"])) and not (
            path[1:2] == [section] and len(path) > 2 and is_plain([*path[3:], key])
        ):
            parts += text[done : token.start()], '"***"'
            done = token.end()
    return "".join(parts) + text[done:]


def _decoded(text: str, section: str, source: str) -> dict[str, object]:
    root = decode(text if text.strip(_SPACE) else "{}", source)
    if not isinstance(root, dict):
        raise ConfigError(f"{source}: must hold an object; correct the file")
    table = cast("dict[str, object]", root)
    if not isinstance(table.get(section, {}), dict):
        raise ConfigError(f"{source}: {section}: must be an object; correct the file")
    return table


def _checked(edited: str, wanted: object, section: str, source: str) -> str:
    if decode(edited, source) != wanted:
        raise ConfigError(f"{source}: too unusual to edit safely (a key twice?); edit `{section}` by hand")
    return edited


def _skip(plain: str, at: int) -> int:
    match = _NOT_SPACE.search(plain, at)
    return match.start() if match else len(plain)


def _scan(plain: str, at: int) -> _Object:
    read = json.JSONDecoder().raw_decode
    start = _skip(plain, at)
    members: list[_Member] = []
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        key, end = read(plain, at)
        value = _skip(plain, _skip(plain, end) + 1)
        _, end = read(plain, value)
        members.append(_Member(key, at, value, end))
        at = _skip(plain, end)
        at = _skip(plain, at + 1) if plain[at] == "," else at
    return _Object(start, at, tuple(members))


def _rendered(text: str, value: object, indent: str | None) -> str:
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_line_break(text) + indent).join(lines)


def _unit(text: str) -> str:
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, at: int) -> str | None:
    """The white space before `at` on its line; None if anything else precedes it."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if not before.strip(" \t") and "\n" in text[:at] else None


def _after_comma(text: str, end: int) -> int | None:
    bare = blank_comments(text)
    comma = _skip(bare, end)
    return comma + 1 if bare[comma : comma + 1] == "," else None


def _added(text: str, table: _Object, key: str, value: object, depth: int) -> str:
    if not table.members:
        return _filled(text, table, key, value, depth)
    last = table.members[-1]
    after = _after_comma(text, last.end)
    gap = text[after or last.end : table.end].rstrip(_SPACE)
    one_line = "\n" not in text[table.start : table.end]
    indent = None if one_line else _line_indent(text, last.start) or _unit(text) * depth
    lead = " " if indent is None else _line_break(text) + indent
    member = f"{lead}{json.dumps(key, ensure_ascii=False)}: {_rendered(text, value, indent)}"
    tail = (after or last.end) + len(gap)
    if after:  # the file has a trailing comma, so the new member gets one
        return text[:tail] + member + "," + text[tail:]
    return text[: last.end] + "," + text[last.end : tail] + member + text[tail:]


def _filled(text: str, table: _Object, key: str, value: object, depth: int) -> str:
    inner = text[table.start + 1 : table.end].rstrip(_SPACE)
    outer, line = _unit(text) * (depth - 1), _line_break(text)
    indent = outer + _unit(text)
    member = f"{indent}{json.dumps(key, ensure_ascii=False)}: {_rendered(text, value, indent)}"
    return f"{text[: table.start + 1]}{inner}{line}{member}{line}{outer}{text[table.end :]}"


def _replaced(text: str, old: _Member, value: object) -> str:
    indent = _line_indent(text, old.start)
    return text[: old.value] + _rendered(text, value, indent) + text[old.end :]


def _removed(text: str, table: _Object, name: str) -> str:
    place = max(index for index, other in enumerate(table.members) if other.key == name)
    member = table.members[place]
    after = _after_comma(text, member.end) or member.end
    if place + 1 < len(table.members):
        return text[: member.start] + text[_skip(text, after) :]  # a comment between the two stays
    floor = _after_comma(text, table.members[-2].end) if place else None
    head = _without_gap(text, floor or table.start + 1, member.start, after)
    if floor is not None and after == member.end:
        head = head[: floor - 1] + head[floor:]
    tail = text[after:]
    return head + (tail.lstrip(_SPACE) if head.endswith("{") else tail)


def _without_gap(text: str, floor: int, start: int, after: int) -> str:
    """The text before `start` without its trailing white space, unless a line comment needs the break."""
    stop = len(text[floor:start].rstrip(_SPACE)) + floor
    if stop > floor and not _LINE_ENDS.match(text, after):
        return text[:start]
    return text[:stop]


_Table = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """Edits texts of one format; `section` is the key of the table of servers, `source` the path for errors.

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


JSON: Final = Format(entries, with_entry, without_entry, concealed)


@dataclass(frozen=True, slots=True)
class _Documents:
    """The functions of a `Format` for a library that parses a text into a document and writes it back."""

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
    if isinstance(node, MutableMapping):
        return {str(key): _data(value) for key, value in cast("_Table", node).items()}
    if isinstance(node, list):
        return [_data(value) for value in cast("list[Any]", node)]
    return node.unwrap() if hasattr(node, "unwrap") else node


def _conceal(node: Any, own: tuple[str, str], path: tuple[str, ...]) -> None:
    if isinstance(node, list):
        items: list[tuple[Any, Any]] = [*enumerate(cast("list[Any]", node))]
    else:
        items = [*node.items()]
    for key, value in items:
        place = (*path, str(key))
        if isinstance(value, MutableMapping | list):
            _conceal(value, own, place)
        elif (place[:2] != own or place[2:3] in (("env",), ("envs",))) and not (
            place[0] == own[0] and len(place) > 2 and is_plain(place[2:])
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
    # A scalar that does not fit its type, such as a date, raises one of the others.
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


def _written_out(value: object, counts: dict[int, int]) -> int:
    """The number of values in a document in which each alias stands for a copy."""
    identity = id(value)
    if identity not in counts:
        items: Iterable[object] = ()
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value).values()
        elif isinstance(value, list):
            items = cast("list[object]", value)
        counts[identity] = 1 + sum(_written_out(item, counts) for item in items)
    return counts[identity]


def _dump_yaml(document: _Table) -> str:
    stream = io.StringIO()
    _round_trip().dump(document, stream)
    return stream.getvalue()


def _of(documents: _Documents) -> Format:
    return Format(documents.entries, documents.with_entry, documents.without_entry, documents.concealed)


_MOST_VALUES: Final = 100_000  # values of a YAML file, with each alias counted as a copy
TOML: Final = _of(_Documents(_load_toml, _dump_toml))
YAML: Final = _of(_Documents(_load_yaml, _dump_yaml))
