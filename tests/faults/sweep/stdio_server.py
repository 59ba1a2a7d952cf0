"""A server on standard input and output that answers well but for one message, once.

Its argument is JSON: `at` (the index of that message), `fault`, `flag` (a file that says that it has
happened), `count` (a file for the number of messages sent) and what `Behaviour` takes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from behaviour import Behaviour  # pyright: ignore[reportMissingImports]
from messages import MESSAGES  # pyright: ignore[reportMissingImports]


def write(line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(1, left) :]


def spoil(fault: str, answer: dict[str, Any]) -> None:
    match fault:
        case "exit":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "half and exit":
            write(json.dumps(answer).encode()[:20])
            os._exit(1)
        case "close output":
            os.close(1)
        case "close input":
            os.close(0)
            write(json.dumps(answer).encode() + b"\n")
        case "late":
            threading.Event().wait(0.3)
            write(json.dumps(answer).encode() + b"\n")
        case _:
            for line in MESSAGES[fault](answer):
                write(line + b"\n")


def main() -> None:
    behaviour = Behaviour.read()
    script = behaviour.script
    flag, sent = Path(script["flag"]), 0
    behaviour.log({"started": os.getpid()})
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "method" not in message or "id" not in message:
            continue
        found = behaviour.answer(message)
        if found is None:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"], **found}
        if sent == script["at"] and not flag.exists():
            flag.write_text(message["method"])
            spoil(script["fault"], answer)
        else:
            write(json.dumps(answer).encode() + b"\n")
        sent += 1
        if "count" in script:
            Path(script["count"]).write_text(str(sent))


main()
