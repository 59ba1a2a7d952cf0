"""The code around a snippet: functions of the granted tools before it, its value as text after it.

Only texts leave the sandbox. An object of a snippet may be small there and endless outside: a tuple of which
each part is shared many times over takes forever to hash, as the key of a dictionary, in the server itself.
"""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Iterator, Sequence
from typing import Final

from mcp_toolset._records import dataclass
from mcp_toolset.tools.core.result import encodable
from mcp_toolset.tools.view.python_stub import Functions

CALL: Final = "_call"
"""The function of the server that the functions of the tools call, with two texts."""

_LAST: Final = f'\n{CALL}("", f"{{_text(_value)}}")\n'
_STORED: Final = "_value = ("
PRELUDE: Final = f"""\
import json as _json
_value = None
def _plain(value):
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {{key if isinstance(key, str) else str(key): _plain(each) for key, each in value.items()}}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    try:
        return value.isoformat()
    except AttributeError:
        return repr(value)
def _text(value):
    try:
        return _json.dumps(_plain(value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return _json.dumps("<" + type(value).__name__ + " without a JSON form>")
async def _made(name, arguments):
    return _json.loads(await {CALL}(f"{{name}}", f"{{_json.dumps(arguments)}}"))
def _unclear(name, names):
    raise NameError(f"several tools would be {{name!r}}: use {{names}}")
"""
"""What every snippet finds; it is run by itself, before the functions and the snippet."""

_STATEMENTS: Final = frozenset(
    "assert async break case class continue def del elif else except finally for from global if import match "
    "nonlocal pass raise return try type while with @".split()
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True, slots=True)
class Source:
    """A snippet between what is run before it and after it.

    Attributes:
        text: All of it.
        end: Where the snippet ends, in bytes; after it, its value is handed out.
        lines: The lines before it.
    """

    text: str
    end: int
    lines: int


def source_of(code: str, functions: Functions) -> Source:
    """A snippet with the functions that it finds, and with the handing out of its value."""
    before = _functions(functions)
    kept = before + keeping_value(encodable(code))
    return Source(kept + _LAST, len(kept.encode()), before.count("\n"))


def _functions(functions: Functions) -> str:
    """The functions that a snippet finds, each with keyword arguments."""
    made = [
        f"async def {name}(**arguments):\n    return await _made({json.dumps(name)}, arguments)"
        for name in functions.tools
    ]
    unclear = [
        f"def {name}(**arguments):\n    _unclear({json.dumps(name)}, {json.dumps(_others(functions, name))})"
        for name in functions.ambiguous
    ]
    return "\n".join([*made, *unclear, ""])


def _others(functions: Functions, name: str) -> str:
    return " or ".join(f"{one} ({tool})" for one, tool in functions.ambiguous[name].items())


def keeping_value(code: str) -> str:
    """The snippet, which keeps the value of its last line, an expression or `return`; no line moves.

    It is split into tokens and not parsed: a parser of this process could be driven to its limits.
    """
    try:
        last = _last_expression(list(tokenize.generate_tokens(io.StringIO(code).readline)))
    # What cannot be split into tokens, the sandbox refuses with a better message.
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code
    if not last:
        return code
    lines = code.splitlines(keepends=True)
    (row, column), (end_row, end_column) = last[0].start, last[-1].end
    lines[end_row - 1] = f"{lines[end_row - 1][:end_column]}){lines[end_row - 1][end_column:]}"
    rest = lines[row - 1][column:]
    rest = rest.removeprefix("return") if last[0].string == "return" else rest
    lines[row - 1] = f"{lines[row - 1][:column]}{_STORED}{rest}"
    return "".join(lines)


def without_marks(line: str) -> str:
    """A line of a snippet as it was before `keeping_value`."""
    before, mark, after = line.partition(_STORED)
    return before + after.rstrip().removesuffix(")") if mark else line


def _last_expression(tokens: Sequence[tokenize.TokenInfo]) -> Sequence[tokenize.TokenInfo]:
    """The tokens of the last statement, if it stands by itself and is an expression."""
    last: Sequence[tokenize.TokenInfo] = ()
    for level, statement in _statements(tokens):
        last = statement if level == 0 else ()
    if not last or last[0].string in _STATEMENTS and not (last[0].string == "return" and len(last) > 1):
        return ()
    depth = 0
    for token in last:
        depth += (token.string in _OPENING) - (token.string in _CLOSING) if token.type == tokenize.OP else 0
        is_assigning = token.string.endswith("=") and token.string not in {"==", "!=", "<=", ">="}
        if depth == 0 and token.type == tokenize.OP and is_assigning:
            return ()
        if depth == 0 and token.string == ":" and last[0].string != "lambda":
            return ()
    return last


def _statements(
    tokens: Sequence[tokenize.TokenInfo],
) -> Iterator[tuple[int, Sequence[tokenize.TokenInfo]]]:
    """The statements with the level at which each stands."""
    level = depth = 0
    found: list[tokenize.TokenInfo] = []
    for token in tokens:
        level += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type == tokenize.OP:
            depth += (token.string in _OPENING) - (token.string in _CLOSING)
        ends = token.type == tokenize.NEWLINE or (depth == 0 and token.string == ";")
        if ends and found:
            yield level, found
            found = []
        elif not ends and token.type not in _NO_CODE:
            found.append(token)
    if found:
        yield level, found
