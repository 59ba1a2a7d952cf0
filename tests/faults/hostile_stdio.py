"""A hostile server on standard input and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from behaviour import Behaviour, text, tool  # pyright: ignore[reportMissingImports]


def write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


def send(**members: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")


def note(method: str, **params: Any) -> None:
    send(method=f"notifications/{method}", params=params)


DONE: dict[str, Any] = {"result": text("done")}
GARBAGE = [b"no JSON", b"\xff\xfe\xfa", b"[1, 2", b'{"jsonrpc": "1.0"}', b"{}", b"null", b"", b"\x00" * 100]
DEFIANT = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


class Specials:
    """Calls that are answered by more, or by less, than one message."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.met: list[Any] = []

    def garbage(self, number: Any, lines: int) -> None:
        write(b"\n".join(GARBAGE[line % len(GARBAGE)] for line in range(lines)) + b"\n")
        send(id=number, **DONE)

    def ids(self, number: Any) -> None:
        for wrong in (987654, "none of yours", -1, 0, f"{number}x"):
            send(id=wrong, **DONE)
        send(id=number, **DONE)
        send(id=number, result=text("a second answer"))
        send(id=number, error={"code": 1, "message": "a third"})

    def deep(self, number: Any, depth: int) -> None:
        nested = "[" * depth + "]" * depth
        write(f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":[],"x":{nested}}}}}\n'.encode())

    def deep_last(self, number: Any, depth: int) -> None:
        nested = "[" * depth + "]" * depth
        write(f'{{"result":{{"content":[],"x":{nested}}},"jsonrpc":"2.0","id":{number}}}\n'.encode())

    def big(self, number: Any, size: int) -> None:
        send(id=number, result=text("x" * size))

    def flood(self, number: Any, count: int) -> None:
        for step in range(count):
            note("message", level="info", data=step)
            note("progress", progressToken=number, progress=step)
        send(id=number, **DONE)

    def custom(self, number: Any) -> None:
        note("progress", progressToken=number, progress=1, total=2, _meta={"example.com/step": "a"})
        note("example/spoken", what="anything")
        send(id=number, **DONE)

    def storm(self, number: Any, count: int) -> None:
        for _ in range(count):
            note("tools/list_changed")
        send(id=number, **DONE)

    def change(self, number: Any, then: str = "") -> None:
        self.behaviour.script["tools"] = [tool("other"), tool("echo", description="Changed.")]
        note("tools/list_changed")
        if then != "hang":
            send(id=number, **DONE)

    def answer_held(self, number: Any, id: Any) -> None:
        send(id=id, **DONE)
        send(id=number, **DONE)

    def meet(self, number: Any, parties: int) -> None:
        self.met.append(number)
        if len(self.met) == parties:
            note("message", level="info", data="said")
            for met in self.met:
                send(id=met, **DONE)

    def stderr(self, number: Any, bytes: int) -> None:
        line = b"e" * 99 + b"\n"
        for _ in range(bytes // len(line)):
            os.write(2, line)
        send(id=number, **DONE)

    def close(self, number: Any) -> None:
        os.close(1)

    def deaf(self, number: Any) -> None:
        os.close(0)

    def child(self, number: Any) -> None:
        command = [sys.executable, "-S", "-c", DEFIANT]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert started.stdout is not None
        started.stdout.readline()
        send(id=number, result=text(str(started.pid)))

    def sleep(self, number: Any) -> None:
        signal.pause()


def main() -> None:
    behaviour = Behaviour.read()
    if behaviour.script.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "last_words" in behaviour.script:
        os.write(2, behaviour.script["last_words"].encode())
        sys.exit(3)
    behaviour.log({"started": os.getpid()})
    specials = Specials(behaviour)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        behaviour.log(message)
        if "method" not in message or "id" not in message:
            continue
        params = message.get("params") or {}
        special = (
            getattr(specials, params.get("name", ""), None) if message["method"] == "tools/call" else None
        )
        if special is not None:
            special(message["id"], **(params.get("arguments") or {}))
            continue
        answer = behaviour.answer(message)
        if answer is not None:
            send(id=message["id"], **answer)
    while behaviour.script.get("stubborn"):
        signal.pause()


main()
