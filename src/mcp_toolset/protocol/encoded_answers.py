"""Answers as lines: results that are in JSON already, as a whole or in their long texts.

A line without a backslash has no escape in it, so every text in it is between its quotes just what it
is when read. Looking through 32 MB for what has to be escaped takes longer than everything else that is
done with them; base64 never has any. Which texts are meant is told by identity: a text that anybody
has changed or put in its place is another object, and is written as any other.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from mcp_toolset.protocol.codec import json_of
from mcp_toolset.protocol.errors import UNWRITTEN
from mcp_toolset.protocol.json_rpc import ErrorData, RequestId

LONG: Final = 256 * 1024
"""Characters from which on a text is worth it."""

_DIGITS: Final = 9

_TEXTS: Final = ("text", "data", "blob")
_log = logging.getLogger("mcp_toolset.wire")


class Encoded(dict[str, Any]):
    """A result that is in JSON form already; as a dictionary it is the same result."""

    __slots__ = ("json",)

    def __init__(self, result: Mapping[str, Any], json: bytes) -> None:
        """Keep both forms; to change one of them, make a new object."""
        super().__init__(result)
        self.json = json


class Verbatim(dict[str, Any]):
    """A result, and those of its texts that are in JSON what they are."""

    __slots__ = ("texts",)

    def __init__(self, result: Mapping[str, Any], texts: Sequence[str]) -> None:
        """Keep the texts beside the result; code that makes another result of it may pass them on."""
        super().__init__(result)
        self.texts = texts


def with_tools(listed: Encoded, more: Sequence[Mapping[str, Any]]) -> Encoded:
    """A list of tools as legacy clients get it, with more at its end; the rest is not written again."""
    tools: list[Any] = listed["tools"]
    added = json_of(more)[1:-1]
    json = b"%b%b%b]}" % (listed.json[:-2], b"," if tools and more else b"", added)
    return Encoded({**listed, "tools": [*tools, *more]}, json)


def noted(message: dict[str, Any], line: bytes) -> dict[str, Any]:
    """The message that was read from a line; long texts of its result are noted if they stand there as is."""
    if len(line) < LONG or b"\\" in line:
        return message
    result: object = message.get("result")
    if type(result) is dict:
        found = cast("dict[str, Any]", result)
        texts = [text for block, key in _places(found) if len(text := block[key]) >= LONG]
        if texts:
            message["result"] = Verbatim(found, texts)
    return message


def carried(before: Mapping[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """`after`, which was made of `before` and may still have its texts."""
    return Verbatim(after, before.texts) if type(before) is Verbatim else after


def answer_line(number: RequestId | None, result: dict[str, Any] | None, fault: ErrorData | None) -> bytes:
    """The answer to a request: its result, or the fault if there is one."""
    return b"".join(answer_parts(number, result, fault))


def answer_parts(
    number: RequestId | None, result: dict[str, Any] | None, fault: ErrorData | None
) -> list[bytes]:
    """`answer_line` in parts, so that long texts need not be copied to where the rest of it is."""
    if fault is not None:
        return [json_of({"jsonrpc": "2.0", "id": number, "error": fault.to_wire()})]
    if type(result) is Encoded:
        return [b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json_of(number), result.json)]
    if type(result) is Verbatim:
        return _spliced(number, result)
    return [json_of({"jsonrpc": "2.0", "id": number, "result": result})]


def surely_parts(
    number: RequestId | None, result: dict[str, Any] | None, fault: ErrorData | None
) -> list[bytes]:
    """`answer_parts`, and an error in place of a result that has no JSON form."""
    try:
        return answer_parts(number, result, fault)
    except ValueError as raised:
        _log.warning("an answer was not sent, as no JSON can carry it: %s", raised)
        return answer_parts(number, None, UNWRITTEN)


def _spliced(number: RequestId | None, result: Verbatim) -> list[bytes]:
    known = {id(text) for text in result.texts}
    # The author of a result cannot know what stands for its texts.
    mark = secrets.token_hex(16)
    texts: list[str] = []

    def stand_in(text: str) -> str:
        if id(text) not in known:
            return text
        texts.append(text)
        return f"{mark}{len(texts) - 1:0{_DIGITS}}"

    message = {"jsonrpc": "2.0", "id": number, "result": _with(result, stand_in)}
    parts = re.split(rb"%b(\d{%d})" % (mark.encode(), _DIGITS), json_of(message))
    # Between each two parts stands which text is between them.
    parts[1::2] = [texts[int(place)].encode() for place in parts[1::2]]
    return parts


def _places(result: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where a result has texts: in its blocks, and in the resources that these hold."""
    content: object = result.get("content")
    for block in cast("list[object]", content) if type(content) is list else ():
        if type(block) is not dict:
            continue
        fields = cast("dict[str, Any]", block)
        for name, value in fields.items():
            if name == "resource" and type(value) is dict:
                held = cast("dict[str, Any]", value)
                yield from ((held, key) for key, text in held.items() if _is_text(key, text))
            elif _is_text(name, value):
                yield fields, name


def _is_text(key: str, value: object) -> bool:
    return key in _TEXTS and type(value) is str


def _with(result: Mapping[str, Any], stand_in: Callable[[str], str]) -> dict[str, Any]:
    """A copy of the result, as deep as its texts are, with other texts."""
    copied, content = dict(result), result.get("content")
    if type(content) is list:
        copied["content"] = [_copied(block) for block in cast("list[Any]", content)]
    for place, key in _places(copied):
        place[key] = stand_in(place[key])
    return copied


def _copied(block: Any) -> Any:
    if type(block) is not dict:
        return block
    copied = dict(cast("dict[str, Any]", block))
    resource: object = copied.get("resource")
    if type(resource) is dict:
        copied["resource"] = dict(cast("dict[str, Any]", resource))
    return copied
