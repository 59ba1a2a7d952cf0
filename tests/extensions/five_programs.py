"""Five programs that need no extension, and what one says of extensions that are not there.

    PYTHONPATH=COPY:. python tests/extensions/five_programs.py FOLDER KEY...

What is said of each KEY is printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from tests.cli.in_process import run_here
from tests.support.direct_callers import Caller

from mcp_toolset import Identity, RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError

MOUNTED = """
import json, sys

def answer(asked):
    method = asked["method"]
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "desk", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": "knock", "inputSchema": {"type": "object"}}]}
    return {"content": [{"type": "text", "text": "come in"}]} if method == "tools/call" else {}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        known = asked["method"] in ("initialize", "tools/list", "tools/call", "ping")
        said = {"result": answer(asked)} if known else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""

APP = '''
from mcp_toolset import serve, tool

@tool
def echo(text: str) -> str:
    """Say it again."""
    return text

serve(echo)
'''


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


async def local() -> None:
    async with ToolsetServer(Toolset(echo)) as server:
        assert "here" in str(await Caller(server, None).call("echo", text="here"))


async def mounted(program: Path) -> None:
    mount = RemoteToolset([sys.executable, "-S", str(program)], name="desk", protocol="legacy")
    async with ToolsetServer(Toolset(mount)) as server:
        await server.settled()
        assert (await server.call_tool("knock")).text == "come in"


async def granted() -> None:
    server = ToolsetServer(Toolset(echo).deferred())
    async with server:
        caller = Caller(server, Identity.of("ann"))
        assert "echo" in str(await caller.found("say again"))
        resolved = (await caller.call("resolve_tools", ids=["echo"]))["structuredContent"]
        grant = resolved["tools"][0]["grant"]
        assert "granted" in str(await caller.call("call_tool", grant=grant, arguments={"text": "granted"}))


def ran(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it says on both streams."""
    done = run_here(words, folder, os.environ, "")
    return done.returncode, done.stdout + done.stderr


def said_of(folder: Path, key: str) -> dict[str, Any]:
    """What becomes of a key in a file, as a keyword and as a command."""
    file = folder / "keyed.json"
    file.write_text(json.dumps({"toolset": {key: True}, "mcpServers": {}}))
    given: Any = {key: True}
    try:
        ToolsetServer(Toolset(echo), **given)
        keyword = ""
    except (TypeError, DefinitionError) as fault:
        keyword = str(fault)
    try:
        RemoteToolset(["true"], name="cut", **given)
        mount = ""
    except (TypeError, DefinitionError) as fault:
        mount = str(fault)
    return {
        "mount": mount,
        "check": ran(folder, "check", str(file)),
        "list": ran(folder, "list", str(file)),
        "keyword": keyword,
    }


async def calls(program: Path) -> None:
    with anyio.fail_after(60):
        await local()
        await mounted(program)
        await granted()


def five(folder: Path) -> str:
    """Run them; return what `--help` says."""
    program, app = folder / "mounted.py", folder / "app.py"
    program.write_text(MOUNTED)
    app.write_text(APP)
    anyio.run(calls, program)
    code, listed = ran(folder, "list", str(app))
    assert code == 0 and "echo" in listed, listed
    code, refused = ran(folder, "list", "http://127.0.0.1:9/mcp")
    assert code and "127.0.0.1:9" in refused and "not part of this installation" not in refused, refused
    code, helped = ran(folder, "--help")
    assert code == 0 and "  serve  " in helped, helped
    return helped


if __name__ == "__main__":
    place = Path(sys.argv[1])
    helped = five(place)
    loaded = [name for name in sys.modules if name.startswith("mcp_toolset.extensions.")]
    said = {key: said_of(place, key) for key in sys.argv[2:]}
    sys.stdout.write(json.dumps({"loaded": loaded, "help": helped, "said": said}))
