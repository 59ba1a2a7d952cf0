"""Random replies of HTTP servers, read by our client and by httpx2: both have the same outcome.

    python -m tests.faults.fuzz_http --seconds 60 --seed 1

Each case is the bytes of one reply, made of valid parts and then broken, and how they are cut into pieces.
A server sends them to both clients. An outcome is the status, the headers that count and the body, or the
class of the error. Differences are printed with the seed of their case.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import re
import ssl
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import httpcore2
import httpx2

from mcp_toolset.transports import carrier
from mcp_toolset.transports.allowance import FloodError
from mcp_toolset.transports.carrier import Carrier

DEADLINE = 10.0
ARGUED = "stricter"
STRICTER = re.compile(
    "within its compression|after the end of its compression|only gzip and deflate are read"
)
"""Bodies that are not whole, or not readable: httpx2 gives what there is of them, as if it were all."""
MAX_SHOWN = 20
Edit = Callable[[random.Random, bytes], bytes]

STATUSES = [b"200 OK"] * 60 + [
    *(b"200", b"200 ", b"201 Created", b"202 Accepted", b"204 No Content", b"205 Reset", b"304 Not Modified"),
    *(b"400 Bad", b"404 Not Found", b"500 Oops", b"503 Busy", b"599 X", b"99 Low", b"1000 High", b"2x0 No"),
    *(
        b"101 Switching Protocols",
        b"200 \xc3\xbc",
        b"200 a\tb",
        b"200 a\0b",
        b"-200 Minus",
        b"+200 Plus",
        b"",
    ),
]
VERSIONS = [b"HTTP/1.1"] * 60 + [
    *(
        b"HTTP/1.0",
        b"HTTP/1.2",
        b"HTTP/2",
        b"HTTP/2.0",
        b"http/1.1",
        b"HTTP/1.",
        b"HTTP/11",
        b"ICY",
        b" HTTP/1.1",
    )
]
INTERIM = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"]
HEADERS = [
    *(
        b"content-type: application/json",
        b"Content-Type:text/event-stream",
        b"x:",
        b"x: a",
        b"x:  a  ",
        b"x:\ta",
    ),
    *(
        b"x: a\r\n b",
        b" x: a",
        b"x : a",
        b"x",
        b": a",
        b"x\0: a",
        b"x: a\0b",
        b"x: \xff",
        b"\xff: a",
        b"x: a\rb",
    ),
    *(b"connection: close", b"connection: keep-alive", b"connection: close, x", b"keep-alive: timeout=5"),
    *(
        b"x: " + b"a" * 4000,
        b"date: today",
        b"trailer: x",
        b"upgrade: h2c",
        b"x(y): a",
        b"x: a\n b",
        b"x: a\nb: c",
    ),
]
SOUND = [*HEADERS[:6], b"connection: close", b"connection: keep-alive", b"date: today", b"trailer: x"]
LENGTHS = [
    *(
        b"0",
        b"1",
        b"+%d",
        b"-%d",
        b"%d ",
        b" %d",
        b"0%d",
        b"%d, %d",
        b"%d,%d",
        b"%d, 1",
        b"0x%x",
        b"%d.0",
        b"",
    ),
    *(b"99999999999999999999999", b"1_0", b"\xb2", b"%d;", b"%d\t"),
]
ENCODINGS = [
    *(
        b"chunked",
        b"Chunked",
        b"CHUNKED",
        b" chunked ",
        b"chunked, chunked",
        b"gzip, chunked",
        b"chunked, gzip",
    ),
    *(
        b"identity",
        b"gzip",
        b"xchunked",
        b"chunked;a=b",
        b"",
        b"chunked,",
        b"\x0bchunked",
        b'"chunked"',
        b"deflate",
    ),
]
CODINGS = [b"gzip", b"gzip", b"deflate", b"GZIP", b"identity", b"", b" gzip", b"gzip, identity"]
TRAILERS = [
    b"",
    b"",
    b"",
    b"x: a\r\n",
    b"x: a\r\ny: b\r\n",
    b"content-length: 5\r\n",
    b"bad\r\n",
    b" x: a\r\n",
]
SIZES = [b"%x"] * 12 + [
    *(
        b"%X",
        b"0%x",
        b"000000%x",
        b"%x ",
        b" %x",
        b"%x;a",
        b"%x;a=b",
        b'%x;a="b"',
        b"%x ;a",
        b"%x\t",
        b"+%x",
        b"-%x",
    ),
    *(
        b"0x%x",
        b"%xg",
        b"",
        b"fffffffff",
        b"ffffffffffffffffffffff",
        b"%x;a\x0bb",
        b"%x;\r",
        b"%x\n;",
        b"%d.0",
    ),
]


@dataclass
class Case:
    """What a server sends, in pieces, and whether it closes then."""

    pieces: list[bytes]
    closes: bool = True

    @property
    def sent(self) -> bytes:
        return b"".join(self.pieces)


def case_of(seed: int) -> Case:
    """The case with this seed."""
    draw = random.Random(seed)
    body = bytes(draw.choices(b'{}[]"abc123\r\n :\0\xff', k=draw.choice((0, 1, 2, 10, 100, 3000, 70_000))))
    lines = draw.choices(HEADERS if draw.random() < 0.3 else SOUND, k=draw.choice((0, 1, 1, 2, 3, 8)))
    if draw.random() < 0.25:
        coding = draw.choice(CODINGS)
        lines.append(b"content-encoding: " + coding)
        body = compressed(draw, coding, body)
    framing = draw.choice(
        ("length", "length", "chunks", "chunks", "close", "odd length", "odd chunks", "both", "two")
    )
    if framing in ("length", "both", "two"):
        lines.append(b"Content-Length: %d" % len(body))
    if framing == "two":
        lines.append(b"content-length: %d" % (len(body) + draw.choice((0, 0, 1, -1))))
    if framing == "odd length":
        lines.append(b"content-length: " + filled(draw.choice(LENGTHS), len(body)))
    if framing in ("chunks", "both"):
        lines.append(b"Transfer-Encoding: chunked")
    if framing == "odd chunks":
        lines += [b"transfer-encoding: " + one for one in draw.choices(ENCODINGS, k=draw.choice((1, 1, 2)))]
    draw.shuffle(lines)
    chunked = framing in ("chunks", "both") or (framing == "odd chunks" and draw.random() < 0.8)
    head = (
        draw.choice(VERSIONS)
        + b" "
        + draw.choice(STATUSES)
        + b"\r\n"
        + b"".join(one + b"\r\n" for one in lines)
    )
    sent = head + b"\r\n" + (in_chunks(draw, body) if chunked else body)
    if draw.random() < 0.1:
        sent = b"".join(draw.choices(INTERIM, k=draw.choice((1, 2, 5)))) + sent
    if draw.random() < 0.1:
        sent += draw.choice((b"\r\n", b"x", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\ny", b"\0" * 10))
    for _ in range(draw.choice((0, 0, 0, 0, 1, 1, 2, 5))):
        sent = draw.choice(EDITS)(draw, sent)
    return Case(in_pieces(draw, sent))


def compressed(draw: random.Random, coding: bytes, body: bytes) -> bytes:
    kind = coding.strip().lower()
    if b"gzip" in kind:
        # httpx2 reads the first of several members, and says nothing of the others (`test_bodies.py`).
        return draw.choice((gzip.compress(body, mtime=0), gzip.compress(body, mtime=0), body))
    if kind == b"deflate":
        raw = zlib.compressobj(wbits=-15)
        return draw.choice((zlib.compress(body), raw.compress(body) + raw.flush(), body))
    return body


def filled(form: bytes, size: int) -> bytes:
    count = form.count(b"%d") + form.count(b"%x") + form.count(b"%X")
    return form % ((size,) * count) if count else form


def in_chunks(draw: random.Random, body: bytes) -> bytes:
    parts = list[bytes]()
    while body:
        size = draw.choice((1, 2, 10, 1000, 100_000))
        chunk, body = body[:size], body[size:]
        form = draw.choice(SIZES) if draw.random() < 0.1 else b"%x"
        parts.append(filled(form, len(chunk)) + b"\r\n" + chunk + b"\r\n")
        if len(parts) > 200:
            parts.append(b"%x\r\n%b\r\n" % (len(body), body) if body else b"")
            break
    end = draw.choice((b"0", b"0", b"0", b"00", b"0;a=b", b"000000", b"0 ", b""))
    return b"".join(parts) + end + b"\r\n" + draw.choice(TRAILERS) + b"\r\n"


def _cut(draw: random.Random, sent: bytes) -> bytes:
    return sent[: draw.randrange(len(sent) + 1)]


def _dropped(draw: random.Random, sent: bytes) -> bytes:
    at = draw.randrange(min(len(sent), 400) + 1)
    return sent[:at] + sent[at + draw.choice((1, 1, 2, 10)) :]


def _put_in(draw: random.Random, sent: bytes) -> bytes:
    at = draw.randrange(min(len(sent), 400) + 1)
    return (
        sent[:at] + draw.choice((b"\r", b"\n", b"\r\n", b" ", b"\0", b"\xff", b":", b",", b"a")) + sent[at:]
    )


def _bare(draw: random.Random, sent: bytes) -> bytes:
    return sent.replace(b"\r\n", b"\n", draw.choice((1, 3, -1)))


def _changed(draw: random.Random, sent: bytes) -> bytes:
    at = draw.randrange(min(len(sent), 400) or 1)
    return sent[:at] + bytes([draw.randrange(256)]) + sent[at + 1 :]


EDITS: list[Edit] = [_cut, _dropped, _put_in, _bare, _changed]


def in_pieces(draw: random.Random, sent: bytes) -> list[bytes]:
    many = draw.choice((1, 1, 1, 2, 3, 8))
    cuts = sorted(draw.randrange(len(sent) + 1) for _ in range(many - 1))
    return [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]


@dataclass
class Server:
    """Sends the case at hand to whoever connects."""

    case: Case = field(default_factory=lambda: Case([]))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in self.case.pieces:
                writer.write(piece)
                await writer.drain()
                await anyio.lowlevel.checkpoint()
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Not to be made for each case."""

Outcome = tuple[object, ...]


async def ours(url: str) -> Outcome:
    """What our client makes of a reply."""
    carrier_ = Carrier(url, {})
    try:
        with anyio.fail_after(DEADLINE):
            reply = await carrier_.send("POST", {"accept": "*/*"}, b"{}")
            try:
                body = b"".join([chunk async for chunk in reply.chunks()])
            except BaseException:
                await carrier.release(reply)
                raise
            await reply.aclose()
            return reply.status, reply.header("content-type"), body
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, FloodError) as fault:
        if STRICTER.search(str(fault)):
            return (ARGUED,)
        return (type(fault).__name__,)
    except TimeoutError:
        return ("no end",)
    finally:
        await carrier_.aclose()


async def theirs(url: str) -> Outcome:
    """What httpx2 makes of it."""
    try:
        with anyio.fail_after(DEADLINE):
            async with httpx2.AsyncClient(trust_env=False, verify=_NO_TLS) as client:
                headers = {"accept": "*/*", "accept-encoding": "gzip, deflate"}
                reply = await client.post(url, content=b"{}", headers=headers)
                return reply.status_code, reply.headers.get("content-type", ""), reply.content
    except httpx2.DecodingError:
        # Ours is an error of the protocol.
        return ("RemoteProtocolError",)
    except httpx2.TransportError as fault:
        return (type(fault).__name__,)
    except TimeoutError:
        return ("no end",)


def is_raw(case: Case, *outcomes: Outcome) -> bool:
    """True if a body without the header of zlib is the reason: how httpx2 reads it depends on the pieces."""
    return b"deflate" in case.sent.lower() and ("RemoteProtocolError",) in outcomes


def shown(outcome: Outcome) -> str:
    return str(
        tuple(
            f"{len(part)} bytes" if isinstance(part, bytes) and len(part) > 40 else part for part in outcome
        )
    )


@dataclass
class Found:
    """What a run has found."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    differences: dict[int, str] = field(default_factory=dict[int, str])


async def fuzzed(seed: int, seconds: float, most: int = sys.maxsize) -> Found:
    """Run cases, from the one with this seed on, for some seconds or until there were as many."""
    found, server = Found(), Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
        end = time.monotonic() + seconds
        while time.monotonic() < end and found.cases < most:
            number = seed + found.cases
            server.case = case_of(number)
            one, other = await ours(url), await theirs(url)
            found.cases += 1
            found.outcomes[str(one[0])] += 1
            if one != other and one != (ARGUED,) and not is_raw(server.case, one, other):
                found.differences[number] = f"ours {shown(one)}, httpx2 {shown(other)}"
    return found


def main() -> int:
    """Run, print the counts and the differences; 1 if there is one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--seed", type=int, default=None, help="the seed of the first case; at random by default"
    )
    parser.add_argument("--cases", type=int, default=sys.maxsize)
    options = parser.parse_args()
    seed: int = random.SystemRandom().randrange(2**40) if options.seed is None else options.seed
    found = asyncio.run(fuzzed(seed, options.seconds, options.cases))
    for number, told in list(found.differences.items())[:MAX_SHOWN]:
        sys.stdout.write(f"case {number}: {told}\n    {case_of(number).sent[:300]!r}\n")
    told = f"{found.cases} cases, {len(found.differences)} differences; {dict(found.outcomes)}"
    sys.stdout.write(f"seed {seed}: {told}\n")
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main())
