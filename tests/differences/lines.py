"""Odd messages over a pair of pipes: standard input and output, or streams of messages in a process.

After the messages of a request the list of tools is asked for, again and again: what a server has not
answered when it has answered `ROUNDS` of these, it does not answer. An answer that has to come is waited
for. The clock only bounds a server that hangs.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError
from tests.differences.outcome import joined, shape_of
from tests.differences.requests import INITIALIZED, Ask, Edited, Message, OddRequest, hello

SOON = 120
"""Seconds for what happens at once: much for a busy machine."""

ROUNDS = 4
ROOT = Path(__file__).parents[2]


class Nursery:
    """The process whose forks are the servers."""

    def __init__(self, asking: socket.socket) -> None:
        self._asking = asking

    def born(self, server: str, door: str) -> Pipes:
        """A fork that serves `ours` or `sdk` behind a door."""
        (their_input, my_output), (my_input, their_output) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self._asking, [f"{server} {door}".encode()], [their_input, their_output])
        finally:
            os.close(their_input)
            os.close(their_output)
        return Pipes(my_input, my_output)


@contextmanager
def nursery() -> Generator[Nursery]:
    """Start the process, and end it, with all of its forks."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door,
    ):
        door.settimeout(SOON)
        door.bind(path := f"{folder}/s")
        door.listen()
        command = [sys.executable, "-m", "tests.differences.both_servers", path]
        environment = {**os.environ, "MCP_TOOLSET_CACHE": "off", "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
            try:
                asking, _ = door.accept()
                with asking:
                    yield Nursery(asking)
                process.wait(SOON)
            finally:
                process.kill()


class Pipes:
    """Both directions of a connection, line by line."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._buffer = b""
        self.ended = False
        os.set_blocking(writing, False)

    def send(self, line: bytes) -> None:
        """Write a line; one that nobody reads is lost."""
        rest = memoryview(line + b"\n")
        try:
            while rest:
                if not select.select([], [self._writing], [], SOON)[1]:
                    raise TimeoutError("the server takes nothing more")
                rest = rest[os.write(self._writing, rest) :]
        except BrokenPipeError:
            pass

    def line(self) -> bytes | None:
        """The next line, or `None` when the server is gone."""
        while b"\n" not in self._buffer:
            if not select.select([self._reading], [], [], SOON)[0]:
                raise TimeoutError("the server says nothing more")
            chunk = os.read(self._reading, 1 << 20)
            if not chunk:
                self.ended = True
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """Leave."""
        os.close(self._writing)
        os.close(self._reading)


class Streams:
    """The connections over streams of messages in one process, one after the other."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self.ended = False
        self.send, self.line = pipes.send, pipes.line

    def close(self) -> None:
        """Leave; the process then takes the next connection."""
        self.send(b"")
        while self.line():
            pass


class Wire(Protocol):
    """A connection of lines."""

    ended: bool

    def send(self, line: bytes) -> None: ...
    def line(self) -> bytes | None: ...
    def close(self) -> None: ...


class LineDoor:
    """The connections to one server over which messages go both ways, in one era."""

    def __init__(self, connect: Callable[[], Wire], era: str, *, models: bool = False) -> None:
        """Connect by `connect`; `models` says that messages are the SDK's models before they are sent."""
        self._connect, self._era, self._models = connect, era, models
        self._usual: Wire | None = None
        self._asked = 0

    def takes(self, request: OddRequest) -> bool:
        """True if the door lets its messages through: in memory they are messages already."""
        return not self._models or all(_is_message(self._text(each)) for each in request.messages)

    def outcome(self, request: OddRequest) -> str:
        """What comes of a request."""
        if request.fresh:
            wire = self._connect()
            try:
                return self._exchanged(wire, request)
            finally:
                wire.close()
        if self._usual is None:
            self._usual = self._met()
        told = self._exchanged(self._usual, request)
        if self._usual.ended:
            self.close()
        return told

    def close(self) -> None:
        """Leave, if anybody was met."""
        if self._usual is not None:
            self._usual.close()
            self._usual = None

    def _text(self, message: Message) -> bytes:
        return message if isinstance(message, bytes) else message.written(self._era)

    def _met(self) -> Wire:
        wire = self._connect()
        first = [hello(), INITIALIZED] if self._era == "legacy" else [Ask("server/discover")]
        for ask in first:
            wire.send(ask.written(self._era))
        answer = json.loads(wire.line() or b"{}")
        assert "result" in answer, answer
        return wire

    def _exchanged(self, wire: Wire, request: OddRequest) -> str:
        for message in request.messages:
            wire.send(self._text(message))
        heard: list[Any] = []
        then: Mapping[str, Any] | None = {}
        ids = ids_of(request)
        for _ in range(ROUNDS):
            then = self._listed(wire, heard)
            if then is None or request.answered or _answered(heard) >= len(request.messages):
                break
        while then is not None and request.answered and _answered(heard) < len(request.messages):
            line = wire.line()
            then = then if line is not None else None
            heard += [] if line is None else [json.loads(line)]
        told = joined(shape_of(each, ids, self._era) for each in heard)
        return told + ("" if then and "result" in then else f", then {_afterwards(then)}")

    def _listed(self, wire: Wire, heard: list[Any]) -> Mapping[str, Any] | None:
        """The answer to a list, with what comes before it put into `heard`; `None` if there is none."""
        self._asked += 1
        number = f"list {self._asked}"
        wire.send(Ask("tools/list").written(self._era, number))
        while (line := wire.line()) is not None:
            message = json.loads(line)
            if isinstance(message, dict) and message.get("id") == number:
                return message
            heard.append(message)
        return None


def _answered(heard: list[Any]) -> int:
    return sum(isinstance(each, dict) and "method" not in each for each in heard)


def ids_of(request: OddRequest) -> list[Any]:
    """The ids of what is asked in a request."""
    asks = [each.ask if isinstance(each, Edited) else each for each in request.messages]
    own = [ask.fields.get("id", "odd") for ask in asks if isinstance(ask, Ask)]
    return [*own, "odd", "even"]


def _afterwards(then: Mapping[str, Any] | None) -> str:
    return "the end" if then is None else f"error {then['error']['code']}"


def _is_message(text: bytes) -> bool:
    try:
        jsonrpc_message_adapter.validate_json(text)
    except ValidationError:
        return False
    return True
