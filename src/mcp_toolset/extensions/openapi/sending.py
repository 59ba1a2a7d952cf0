"""`request_of`: the arguments of a call as an HTTP request, written as the document says."""

from __future__ import annotations

import base64
import json
import mimetypes
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import read_regular
from mcp_toolset.errors import InvalidArgumentsError
from mcp_toolset.extensions.openapi.arguments import Body, Parameter, Written, as_sent, is_json
from mcp_toolset.extensions.openapi.operations import Operation

MAX_FILE: Final = 64 * 1024 * 1024
"""The most bytes of a file that a call sends."""

_RESERVED: Final = ":/?[]@!$'()*,;"
"""Characters that are not encoded if a parameter has `allowReserved`: all but those that end a parameter."""

_DATA: Final = re.compile(
    r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w-]+=[\w.-]+)*(;base64)?,(.*)", re.DOTALL | re.ASCII
)
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f]")
_SEPARATORS: Final = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request without credentials."""

    method: str
    path: str  # relative to the address of the server, encoded
    query: str
    headers: Mapping[str, str]
    cookies: tuple[str, ...]  # each `name=value`, encoded
    body: bytes | None


def request_of(operation: Operation, arguments: Mapping[str, Any], files: Path | None) -> Request:
    """The request of a call.

    Args:
        operation: The operation to call.
        arguments: The arguments, which fit its schema.
        files: The folder of files that arguments may name; none without it.

    Raises:
        InvalidArgumentsError: an argument cannot be written where it goes.
    """
    path, _, fixed = operation.path.partition("#")[0].partition("?")
    query = [pair for pair in fixed.split("&") if pair and not _is_fixed("query", pair, operation)]
    headers, cookies = {"accept": operation.accepts}, list[str]()
    for parameter in operation.parameters:
        if parameter.argument not in arguments:
            continue
        value = arguments[parameter.argument]
        if parameter.place == "path":
            path = path.replace("{" + parameter.name + "}", _in_path(parameter, value))
        elif parameter.place == "header":
            headers[parameter.name] = _in_header(parameter, value)
        else:
            pairs = _pairs(parameter.name, value, parameter.written)
            _refuse_fixed(parameter, pairs, operation)
            if parameter.place == "query":
                query += pairs
            else:
                cookies += pairs
    body, media = _body(operation.body, arguments, files)
    if media:
        headers["content-type"] = media
    return Request(operation.method, path, "&".join(query), headers, tuple(cookies), body)


def _refuse_fixed(parameter: Parameter, pairs: list[str], operation: Operation) -> None:
    """Refuse a pair whose name is configured: the members of an object may have any name."""
    for pair in pairs:
        if _is_fixed(parameter.place, pair, operation):
            name = unquote_plus(pair.partition("=")[0])
            raise InvalidArgumentsError(
                f"{parameter.argument}: {name[:80]!r} is set where this server is configured; leave it out"
            )


def _is_fixed(place: str, pair: str, operation: Operation) -> bool:
    """True if a `name=value` has a name that is configured."""
    return (place, as_sent(place, unquote_plus(pair.partition("=")[0]))) in operation.fixed


_EXACT: Final = 1e15
"""The size of a number up to which a float without a fraction is written as an integer."""


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    return value if isinstance(value, str) else _json(value)


def _encoded(value: Any, *, reserved: bool = False) -> str:
    text = _plain(value)
    try:
        return quote(text, safe=_RESERVED if reserved else "")
    except UnicodeEncodeError:
        raise InvalidArgumentsError("an argument has half of a surrogate pair; correct it") from None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_path(parameter: Parameter, value: Any) -> str:
    _check_steps(parameter, [_plain(leaf) for leaf in _leaves(value)])
    if parameter.written.media:
        return _encoded(_json(value))
    name, style, explode = quote(parameter.name, safe=""), parameter.written.style, parameter.written.explode
    if isinstance(value, dict):
        pairs = [(_encoded(key), _encoded(item)) for key, item in cast("dict[str, Any]", value).items()]
        if explode:
            items = [f"{key}={item}" for key, item in pairs]
        else:
            items = [text for pair in pairs for text in pair]
        named_items = items
    else:
        items = [_encoded(item) for item in cast("list[Any]", value if isinstance(value, list) else [value])]
        named_items = [f"{name}={item}" for item in items]
    if style == "matrix":
        return "".join(f";{item}" for item in named_items) if explode else f";{name}={','.join(items)}"
    if style == "label":
        return "." + ("." if explode else ",").join(items)
    return ",".join(items)


def _check_steps(parameter: Parameter, texts: list[str]) -> None:
    """Refuse texts that would lead to another path."""
    for text in texts:
        steps = re.split(r"[/\\]", text)
        if "." in steps or ".." in steps:
            raise InvalidArgumentsError(
                f"{parameter.argument}: {text[:80]!r} has a step `.` or `..`, which leads to another path"
            )
        if _FORBIDDEN.search(text):
            raise InvalidArgumentsError(f"{parameter.argument}: it has a control character; leave it out")
    if not "".join(texts):
        raise InvalidArgumentsError(f"{parameter.argument}: it is empty, and the path needs it; give a value")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _leaves(item)
    else:
        yield value


def _in_header(parameter: Parameter, value: Any) -> str:
    if parameter.written.media:
        text = json.dumps(value, separators=(",", ":"))
    elif isinstance(value, dict):
        joint = "=" if parameter.written.explode else ","
        text = ",".join(f"{key}{joint}{_plain(item)}" for key, item in cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        text = ",".join(map(_plain, cast("list[Any]", value)))
    else:
        text = _plain(value)
    if _FORBIDDEN.search(text) or not text.isascii():
        raise InvalidArgumentsError(
            f"{parameter.argument}: a header has no line breaks, control characters and characters beyond "
            "ASCII; leave them out"
        )
    return text


def _pairs(name: str, value: Any, written: Written) -> list[str]:
    """The `name=value` of a value in a query, a cookie or a form, encoded."""
    key, style = quote(name, safe="[]"), written.style

    def encoded(item: Any) -> str:
        return _encoded(item, reserved=written.reserved)

    joint = _SEPARATORS.get(style, ",")
    if written.media:
        return [f"{key}={encoded(_json(value) if is_json(written.media) else value)}"]
    if style == "deepObject" and isinstance(value, dict | list):
        return [f"{key}{path}={encoded(item)}" for path, item in _deep(value)]
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        if style == "form" and written.explode:
            return [f"{quote(inner, safe='[]')}={encoded(item)}" for inner, item in pairs]
        return [f"{key}={joint.join(encoded(item) for pair in pairs for item in pair)}"]
    if not isinstance(value, list):
        return [f"{key}={encoded(value)}"]
    items = [encoded(item) for item in cast("list[Any]", value)]
    if written.explode:
        return [f"{key}={item}" for item in items]
    return [f"{key}={joint.join(items)}"] if items else []


def _deep(value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a value, each with its path as `[key][key]`."""
    named = (
        cast("dict[str, Any]", value)
        if isinstance(value, dict)
        else dict(enumerate(cast("list[Any]", value)))
    )
    for key, item in named.items():
        step = f"[{quote(str(key), safe='')}]"
        if isinstance(item, dict | list):
            for path, inner in _deep(item):
                yield f"{step}{path}", inner
        else:
            yield step, item


# Bodies


def _body(body: Body | None, arguments: Mapping[str, Any], files: Path | None) -> tuple[bytes | None, str]:
    """The body of a request, and its media type."""
    if body is None:
        return None, ""
    if body.argument:
        if body.argument not in arguments:
            return None, ""
        value = arguments[body.argument]
    else:
        value = {name: arguments[name] for name in body.members if name in arguments}
        if not value and not body.required:
            return None, ""
    if is_json(body.media):
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"), body.media
    kind = body.media.split(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return "&".join(_form(body, value)).replace("%20", "+").encode(), kind
    if kind == "multipart/form-data":
        return _multipart(body, value, files)
    if "" in body.files:
        data, media, _ = _file(str(value), files)
        return data, media if "*" in body.media and media else body.media
    text = value if isinstance(value, str) else _json(value)
    return text.encode("utf-8", "backslashreplace"), body.media


def _members(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _form(body: Body, value: Any) -> Iterator[str]:
    for name, member in _members(value).items():
        written = body.parts.get(name)
        if written is None:
            items = cast("list[Any]", member) if isinstance(member, list) else []
            is_nested = isinstance(member, dict) or any(isinstance(item, dict | list) for item in items)
            # Where the document does not say how, nested values are written as most servers read them.
            written = Written("deepObject") if is_nested else Written()
        yield from _pairs(name, member, written)


def _multipart(body: Body, value: Any, files: Path | None) -> tuple[bytes, str]:
    boundary = secrets.token_hex(16)
    parts = list[bytes]()

    def add(name: str, data: bytes, media: str = "", filename: str = "") -> None:
        head = f'content-disposition: form-data; name="{_quoted(name)}"'
        head += f'; filename="{_quoted(filename)}"' if filename else ""
        head += f"\r\ncontent-type: {media}" if media else ""
        parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n")

    for name, member in _members(value).items():
        items = cast("list[Any]", member) if isinstance(member, list) else [member]
        written = body.parts.get(name)
        described = "" if written is None else written.media
        if name in body.files:
            default = described if described and "*" not in described else "application/octet-stream"
            for item in items:
                data, media, filename = _file(str(item), files)
                add(name, data, media or default, filename or "file")
        elif described and is_json(described):
            add(name, _json(member).encode(), described)
        else:
            for item in items:
                media = "application/json" if isinstance(item, dict | list) else ""
                add(name, _plain(item).encode("utf-8", "backslashreplace"), media)
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def _quoted(text: str) -> str:
    """A name in the head of a part (HTML, multipart/form-data encoding algorithm)."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _file(reference: str, folder: Path | None) -> tuple[bytes, str, str]:
    """The content of a file that an argument names, with its media type and its name."""
    if (match := _DATA.fullmatch(reference)) is not None:
        media, is_base64, data = match.groups()
        if not is_base64:
            return unquote_to_bytes(data), media or "", ""
        try:
            return base64.b64decode("".join(data.split()), validate=True), media or "", ""
        except ValueError:
            raise InvalidArgumentsError("a data: URI has base64 that cannot be read; correct it") from None
    if folder is None:
        raise InvalidArgumentsError(
            "a file is given as a data: URI, as this server has no folder of files (`files`)"
        )
    root = folder.resolve()
    if "\0" in reference:
        raise InvalidArgumentsError(f"{reference[:200]!r} is no path; give another one")
    path = (root / reference).resolve()
    if not path.is_relative_to(root):
        raise InvalidArgumentsError(
            f"{reference[:200]!r} is not below the folder of files; give another path"
        )
    try:
        data = read_regular(path, MAX_FILE + 1)
    except OSError as fault:
        raise InvalidArgumentsError(
            f"{reference[:200]!r} cannot be read: {fault.strerror}; give another path"
        ) from None
    if len(data) > MAX_FILE:
        raise InvalidArgumentsError(f"{reference[:200]!r} has more than {MAX_FILE // 2**20} MiB")
    return data, mimetypes.guess_type(path.name)[0] or "", path.name
