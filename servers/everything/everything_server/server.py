"""The server, and the command that starts it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mcp_toolset import Toolset, ToolsetError, ToolsetServer, serve

from .asking import ASKING
from .changing import changing_tools
from .content import CONTENT
from .jobs import BEFORE_JOBS, JOBS
from .reading import EverythingResources, completed, everything_prompts

__all__ = ["everything_server", "main"]


def everything_server() -> ToolsetServer:
    """A server with one of everything that the protocol knows, in both of its eras."""
    prompts, resources = everything_prompts(), EverythingResources()
    dynamic, changing = changing_tools(prompts, resources)
    return ToolsetServer(
        Toolset(CONTENT, ASKING, JOBS, Toolset(*changing), dynamic),
        name="everything",
        tool_middleware=BEFORE_JOBS,
        instructions="Tools, resources and prompts to try a client, a bridge or a transport with.",
        resources=resources,
        prompts=prompts,
        completions=completed,
        capabilities=["ask", "sample", "roots"],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the client leaves; 1 with one line on stderr if the port cannot be used."""
    parser = argparse.ArgumentParser(prog="everything.py", description="A server with one of everything.")
    parser.add_argument("--transport", choices=["stdio", "http", "sse"], default="stdio")
    parser.add_argument("--host", default="127.0.0.1", help="for http and sse (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="for http and sse (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        serve(everything_server(), transport=options.transport, host=options.host, port=options.port)
    except ToolsetError as error:
        sys.stderr.write(f"everything: {error}\n")
        return 1
    return 0
