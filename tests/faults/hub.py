"""A served hub as a process of its own.

Its argument is JSON: a transport, mounts, and perhaps a shorter grace for children.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support.bounds import place
from tests.support.telling import telling

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, serve, tool
from mcp_toolset.transports.http import app


@tool
def shout(how: str) -> str:
    """Write to standard output."""
    match how:
        case "unflushed":
            print("printed and left in the buffer", end="")  # noqa: T201
        case "flushed":
            print("printed", flush=True)  # noqa: T201
        case "descriptor":
            os.write(1, b"written to the descriptor\n")
        case "stream":
            sys.stdout.write("written to the stream\n")
            sys.__stdout__.write("written to the first stream\n")  # pyright: ignore[reportOptionalMemberAccess]
        case "child":
            subprocess.run([sys.executable, "-S", "-c", "print('by a child')"], check=True)
        case "child_left":
            subprocess.Popen(
                [sys.executable, "-S", "-c", "import time; print('late', flush=True); time.sleep(1)"]
            )
        case "read":
            return repr(sys.stdin.read() + os.read(0, 100).decode())
    return how


def main() -> None:
    options = json.loads(sys.argv[1])
    if "grace" in options:
        setattr(*place("child_grace"), options["grace"])
    app.bound_socket = telling
    mounts = [
        RemoteToolset(command, name=name, start_timeout=60).prefixed(name)
        for name, command in options.get("mounts", {}).items()
    ]
    server = ToolsetServer(Toolset(shout, *mounts), list_timeout=60)
    serve(server, transport=options["transport"], port=0)


if __name__ == "__main__":
    main()
