"""The whole bridge in one run: real servers, one bridge over HTTP, an ordinary client, and its limits.

Exit code 0 means that every step held.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from pathlib import Path

import anyio
from mcp import Client
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent))

from server import ROOT, demo_server
from tour import StepFailedError, Tour

from mcp_toolset import ToolsetError

DEADLINE = 120.0


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="Show the bridge at work, on real servers."
    )
    parser.add_argument("--keep", action="store_true", help="go on serving until Ctrl-C")
    parser.add_argument("--port", type=int, default=0, help="the port to serve on; any free one unless told")
    given = parser.parse_args()
    console = Console(highlight=False)
    failed = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            anyio.run(lambda: show(console, Path(folder), given.port, keep=given.keep))
    except* KeyboardInterrupt:
        console.print("Stopped.")
    except* (StepFailedError, ToolsetError, TimeoutError) as faults:
        console.print(f"\n[bold red]The demo failed:[/] {first(faults)}", soft_wrap=True)
        failed = True
    return int(failed)


def first(fault: BaseException) -> BaseException:
    """The fault itself, out of the groups of the tasks that it has ended."""
    return first(fault.exceptions[0]) if isinstance(fault, BaseExceptionGroup) else fault


async def show(console: Console, folder: Path, port: int, *, keep: bool) -> None:
    """Serve, walk through, and say how to go on."""
    with socket.create_server(("127.0.0.1", port)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    console.print(f"[bold]mcp-toolset demo[/]: starting three servers behind {url}", soft_wrap=True)
    async with demo_server(folder / "notes.db") as server, anyio.create_task_group() as group:
        group.start_soon(lambda: server.run_http(port=port))
        with anyio.fail_after(DEADLINE):
            await server.settled()
            async with Client(url) as client:
                await Tour(console, str(ROOT)).walk(client, server.statuses())
        console.print(f"\n[bold green]Every step held.[/]\n{how_to_go_on(url, keep=keep)}", soft_wrap=True)
        if keep:
            await anyio.sleep_forever()
        group.cancel_scope.cancel()


def how_to_go_on(url: str, *, keep: bool) -> str:
    """How to connect a client of one's own."""
    kept = f"Serving on {url} until Ctrl-C." if keep else "scripts/demo --keep goes on serving."
    return f"""{kept}

To use it from your own client:
  Claude Desktop   .venv/bin/mcp-toolset install claude-desktop servers/notes/notes.py
  Claude Code      .venv/bin/mcp-toolset install claude-code    servers/notes/notes.py
  Cursor, VS Code  .venv/bin/mcp-toolset install cursor|vscode  servers/notes/notes.py
  your own servers .venv/bin/mcp-toolset install claude-desktop path/to/mcp.json
  by hand          {{"mcpServers": {{"demo": {{"type": "http", "url": "{url}"}}}}}}"""


if __name__ == "__main__":
    sys.exit(main())
