"""`Secrets`: the secrets of one mount, and their removal from texts that are shown.

A `Link` collects them; statuses, errors and logs pass through them. docs/configuration.md has the rule:

- A value counts from four characters on. Words that configurations are full of (`true`, `debug`) do not.
- A value of fewer than eight characters is blanked where it stands as a word of its own, a longer one
  wherever it occurs. A value of several lines is blanked line by line too.
- The address of an HTTP server is shown as its origin and `/…`. A segment of its path counts if it may be a
  token: if it has a digit or a capital letter, or at least 16 characters.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cache, cached_property
from html import escape
from typing import Any, Final, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from mcp_toolset._records import dataclass
from mcp_toolset.security.egress import is_web_address
from mcp_toolset.tools.validation import levels, texts_in

SHORTEST: Final = 4  # characters from which on a value is blanked: shorter ones are in every text by chance
ANYWHERE: Final = 8  # characters from which on a value is blanked inside of words too

BLANK: Final = "***"

MAX_SCRUBBED: Final = 1024 * 1024
"""The most of an error, or of a log message, that is looked through: characters, and 32 for each value."""

LEFT_OUT: Final = f"… left out: more than {MAX_SCRUBBED} characters are not looked through for secrets"
_EACH: Final = 32
_FEW: Final = 100
_EDGE: Final = 4096
"""Characters that are looked at behind a cut, so that half of a secret does not stand before it."""


_COMMON: Final = frozenset(
    "true false null none auto default enabled disabled debug trace info warn warning error critical "
    "production development staging test local localhost 127.0.0.1 0.0.0.0 utf-8 utf8 c.utf-8 en_us.utf-8 "
    "http https stdio basic bearer token application/json text/event-stream "
    "mcp sse api public server servers tools stream messages events".split()
)
_FLAG: Final = re.compile(
    r"(?i)^-{1,2}[\w-]*(?:key|token|secret|pass|pwd|auth|credential|cookie|header)[\w-]*"
)
_ASSIGNED: Final = re.compile(r"(?i)^[\w-]*(?:key|token|secret|pass|pwd|auth|credential|cookie)[\w-]*=(.+)")
_HEADER: Final = re.compile(
    r"(?i)(?<![\w-])(?:authorization|[\w-]*(?:key|token|secret|cookie)[\w-]*):\s*(?:(?:bearer|basic)\s+)?([^\s'\"]+)"
)
"""A header in an argument, such as `Authorization: Bearer …` after `-H`."""

_PARTS: Final = re.compile(r"[\W_]+")  # what stands between the parts of a secret that have one spelling each

_TOKEN: Final = re.compile(r"(?=.*[0-9A-Z%=~])|.{16}")
"""A segment of a path that may be a token; plain words in lower case name places."""

_REST: Final = re.compile(r"([^/?#]*)([^?#]*)\??([^#]*)#?(.*)", re.DOTALL)
"""Host, path, query and fragment of what stands behind a scheme; it fits every text."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_LATE: Final = (
    *("httpx2", *(f"httpcore2.{name}" for name in ("connection", "http11", "http2", "proxy", "socks"))),
    *(f"mcp.client.{name}" for name in ("auth.oauth2", "sse", "streamable_http")),
)
"""Loggers of modules that may be imported after a connection is opened."""

_LOGGERS: Final = ("mcp_toolset", "mcp", "httpx2", "httpcore2", "httpx", "httpcore", "asyncio", "anyio")


@dataclass(frozen=True)
class Secrets:
    """The values to blank, longest first, and the address to shorten; false if there is nothing to do.

    `issued` tells the tokens that have been issued so far: they are blanked as the other values are.
    """

    values: tuple[str, ...] = ()
    url: str = ""
    issued: Callable[[], tuple[str, ...]] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, found: Iterable[str], url: str = "", issued: Callable[[], tuple[str, ...]] | None = None
    ) -> Secrets:
        """The secrets among the values that were found, in every spelling in which they may come out."""
        spelt = {spelling for value in found for spelling in _spellings(value) if _counts(spelling)}
        return cls(tuple(sorted(spelt, key=lambda value: (-len(value), value))), url, issued)

    def __bool__(self) -> bool:
        return bool(self.values or self.url or self.issued)

    def scrubbed(self, text: str) -> str:
        if self.issued is not None:
            text = self._of_tokens(self.issued()).scrubbed(text)
        if self._address is not None and "://" in text:
            text = self._address.sub(lambda found: self._shortened(found[0]), text)
        # One expression for all of them takes a hundred times as long.
        for part, pattern in self._forms:
            if part in text:
                text = text.replace(part, BLANK) if pattern is None else pattern.sub(BLANK, text)
        return text

    def cleaned(self, value: Any) -> Any:
        if not self:
            return value
        if isinstance(value, str):
            return self.scrubbed(value)
        if isinstance(value, list):
            return [self.cleaned(item) for item in cast("list[Any]", value)]
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            return {self.scrubbed(key): self.cleaned(item) for key, item in table.items()}
        return value

    def takes(self, value: object) -> bool:
        """True if a JSON value is small enough to be looked through, if there is anything to look for."""
        size = 0
        for level in levels([value]) if self else ():
            for item in level:
                size += _EACH * len(item)
                if size <= MAX_SCRUBBED:
                    size += sum(len(text) for text in texts_in(item) if isinstance(text, str))
                if size > MAX_SCRUBBED:
                    return False
        return True

    def of_error(self, wire: dict[str, Any]) -> Any:
        if self.takes(wire):
            return self.cleaned(wire)
        kept, room = list[Any](), MAX_SCRUBBED
        for block in cast("list[dict[str, Any]]", wire["content"])[:_FEW]:
            text: object = block.get("text")
            if isinstance(text, str) and room > 0:
                kept.append({"type": "text", "text": self.scrubbed(text[: room + _EDGE])[:room]})
                room -= len(text)
        return {"content": [*kept, {"type": "text", "text": LEFT_OUT}], "isError": True}

    @contextmanager
    def kept_from_logs(self) -> Generator[None]:
        """Blank them in the records of this package, of the SDK and of the HTTP client, for a block."""
        if not self:
            yield
            return
        blanking = self._blanking
        blanking.hold()
        try:
            yield
        finally:
            blanking.release()

    def _of_tokens(self, tokens: tuple[str, ...]) -> Secrets:
        blanker = self._tokens.get(tokens)
        if blanker is None:
            self._tokens.clear()
            blanker = self._tokens[tokens] = Secrets.of(tokens)
        return blanker

    @cached_property
    def _tokens(self) -> dict[tuple[str, ...], Secrets]:
        return {}

    @cached_property
    def _blanking(self) -> _SecretFilter:
        return _SecretFilter(self)

    @cached_property
    def _forms(self) -> list[tuple[str, re.Pattern[str] | None]]:
        """Each value to blank, or the longest part of it that has one spelling, with its expression."""
        encoded = {form for value in self.values if len(value) >= ANYWHERE for form in _encoded(value)}
        forms = [*self.values, *sorted(encoded, key=len, reverse=True)]
        return [
            (form, None)
            if len(form) >= ANYWHERE and form.isalnum()
            else (max(_PARTS.split(form), key=len), re.compile(_matching(form)))
            for form in forms
        ]

    @cached_property
    def _address(self) -> re.Pattern[str] | None:
        if not self.url:
            return None
        parts = urlsplit(self.url)
        host = re.escape(parts.netloc.rpartition("@")[2])
        return re.compile(rf"(?i){re.escape(parts.scheme)}://(?:[^\s/@]*@)?{host}(?:[/?#][^\s'\"<>,;]*)?")

    @staticmethod
    def _shortened(url: str) -> str:
        trail = ")" * url.endswith(")")
        return shown_url(url) + trail


class _SecretFilter(logging.Filter):
    """A filter of a logger that blanks one mount's secrets in each record."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets
        self._holders = 0
        self._loggers: list[logging.Logger] = []

    def hold(self) -> None:
        self._holders += 1
        if self._holders == 1:
            self._loggers = [logging.getLogger(name) for name in _loggers()]
            for logger in self._loggers:
                logger.addFilter(self)

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            for logger in self._loggers:
                logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        record.msg, record.args = self._secrets.scrubbed(message), ()
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            clear = self._secrets.scrubbed(trace)
            if clear != trace:
                record.exc_text, record.exc_info = clear, None
        return True


def _loggers() -> list[str]:
    prefixes = tuple(f"{name}." for name in _LOGGERS)
    known = {name for name in list(logging.root.manager.loggerDict) if f"{name}.".startswith(prefixes)}
    return sorted(known | {*_LATE})


def _parts(url: str) -> tuple[str, str, str, str, str]:
    """The user, origin, path, query and fragment of a URL."""
    # Of what is no web address all before the last `@` counts as user: a password may have a `/` or `#` in
    # it.
    scheme, sign, rest = url.partition("://") if "://" in url else ("", "", url)
    end = len(_REST.findall(rest)[0][0]) if is_web_address(url) else None
    user = rest[:end].rpartition("@")[0]
    host, *others = _REST.findall(rest[len(user) :].removeprefix("@"))[0]
    return user, f"{scheme}{sign}{host}", *others


def shown_url(url: str) -> str:
    """A URL as it may be shown: its origin, and `/…` for a path or query."""
    _, origin, path, query, fragment = _parts(url)
    return origin + ("/…" if path.strip("/") or query or fragment else "")


def blanked_url(url: str) -> str:
    return Secrets.of(secrets_of_url(url)).scrubbed(url) if "://" in url else url


def may_hold_a_token(path: str) -> bool:
    return any(map(_TOKEN.match, path.split("/")))


def secrets_of_url(url: str) -> Iterator[str]:
    """The parts of a URL that may be secret: name and password, the segments of its path, its query."""
    user, _, path, query, fragment = _parts(url)
    name, _, password = user.partition(":")
    yield from (name, password, unquote(name), unquote(password), *re.split("[/?#]", password))
    if password:
        yield b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    yield from filter(_TOKEN.match, path.split("/"))
    yield from (query, fragment)
    for key, value in parse_qsl(query, keep_blank_values=True):
        yield value or key


def secret_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Values of arguments that are named like secrets (`--token=x`, `--api-key x`, `KEY=x`), and in URLs."""
    # An argument of several words may be a script for a shell: its words are looked at, too.
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if _FLAG.match(argument):
            value = argument.partition("=")[2] or following
            yield from (value, *value.split(), *re.split(r":\s*", value, maxsplit=1)[1:])
        elif assigned := _ASSIGNED.match(argument):
            yield assigned[1]
        if " " in argument:
            yield from _HEADER.findall(argument)
            yield from secret_arguments(_shell_words(argument))
        for url in _URL.findall(argument):
            yield from secrets_of_url(url)


def _shell_words(script: str) -> list[str]:
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote
        words = script.split()
    return [word for word in words if len(word) < len(script)]


def _spellings(value: str) -> Iterator[str]:
    for plain in {value, value.strip(), *(line.strip() for line in value.splitlines())}:
        yield from (plain, quote(plain, safe=""), quote(plain), unquote(plain))
        yield from (json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1], repr(plain)[1:-1])


def _encoded(text: str) -> Iterator[str]:
    value = text.encode(errors="surrogatepass")
    yield from (value.hex(), value.hex().upper())
    for before in range(3):
        whole = b64encode(bytes(before) + value).decode().rstrip("=")
        # The first and the last characters depend on what stands beside the value.
        inner = whole[(0, 2, 3)[before] : -1 if (before + len(value)) % 3 else None]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))


def _counts(value: str) -> bool:
    return len(value) >= SHORTEST and value.lower() not in _COMMON and bool(value.strip("*/._- "))


def _matching(value: str) -> str:
    if len(value) >= ANYWHERE:
        return "".join(each if each.isalnum() else _spelt(each) for each in value)
    before = r"(?<![A-Za-z0-9])" if value[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if value[-1].isalnum() else ""
    return before + re.escape(value) + after


@cache
def _spelt(sign: str) -> str:
    """A pattern of a sign as it is, and as URLs, JSON and HTML may have it; JSON perhaps within JSON."""
    number, named = ord(sign), escape(sign)
    forms = [re.escape(sign), f"(?i:&#(?:0{{0,4}}{number}|x0{{0,4}}{number:x});)"]
    if named != sign:
        forms.append(re.escape(named))
    if number < 0x80:
        forms.append(f"(?i:%{number:02x})")
    # A run of backslashes that could be read in several ways would be tried in all of them.
    if sign != "\\":
        forms.append(rf"\\{{1,8}}(?:{re.escape(sign)}|(?i:u{number:04x}))")
    return f"(?:{'|'.join(forms)})"
