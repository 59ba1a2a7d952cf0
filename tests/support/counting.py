"""A server on stdio that must be single: it counts in memory, and notes each start in a file."""

import os
import sys
from pathlib import Path

from mcp_toolset import Toolset, ToolsetServer, serve, tool

STARTS = Path(sys.argv[1])
count = 0


@tool
def add_one() -> dict[str, int]:
    """Count one more."""
    global count
    count += 1
    return {"count": count, "pid": os.getpid()}


if __name__ == "__main__":
    # Two at a time would be seen here: the process of an earlier line that still lives.
    before = STARTS.read_text().split() if STARTS.exists() else []
    twice = [each for each in before if Path(f"/proc/{each}").exists()]
    with STARTS.open("a") as file:
        file.write(f"{os.getpid()}\n" + "".join(f"beside-{each}\n" for each in twice))
    serve(ToolsetServer(Toolset(add_one)), transport="stdio")
