"""Run the programs of clients with an entry of ours: `scripts/clients [--programs DIR] [--files DIR] NAME…`.

Each program is installed by npm into `--programs`, and runs in a home folder of its own:

- `mcp-toolset install CLIENT hub.json` writes the entry, and the client's own command has to show it.
- A client that can have a model elsewhere gets a scripted one, over HTTP on this machine: it calls the first
  tool of the hub, and what the client hands back has to be the answer of the tool. The hub says
  `"surface": "auto"`, once with one tool, which is listed, and once with 60 tools.

`--files` has a folder for each client (`copilot-cli/…`, `opencode/…`) with files of yours: in each our entry
is added and removed, its servers are adopted and brought back, and the file has to be as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mcp_toolset.cli import install  # noqa: E402
from mcp_toolset.cli.clients import CLIENTS, ClientName, Machine, locate  # noqa: E402
from mcp_toolset.tools.definition import FIXED_TOOLS  # noqa: E402

WITHIN = 180  # seconds for one run of a program
UPSTREAM = ROOT / "tests" / "support" / "plain_server.py"
ANSWER = "tool_0 of lamps"
"""The beginning of the called tool's answer."""


@dataclass(frozen=True)
class Program:
    """A program of a client.

    Attributes:
        package: Its npm package.
        lists: The command that shows its servers.
        asks: The command that asks its model; none if it takes no model of ours.
        environ: Its environment, with the address of the model as `{url}`.
        settings: Files in its home folder, as JSON or text, with the same.
        connects: True if the command that shows its servers connects to them.
    """

    package: str
    lists: Sequence[str]
    asks: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    connects: bool = True


PROMPT: Final = "Use the first tool of the lamps."
PROGRAMS: Final[Mapping[str, Program]] = {
    "claude-code": Program(
        "@anthropic-ai/claude-code",
        ["claude", "mcp", "list"],
        ["claude", "-p", PROMPT, "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5"],
        {
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_API_KEY": "sk-ant-none",
            "ENABLE_TOOL_SEARCH": "true",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        },
    ),
    "opencode": Program(
        "opencode-ai",
        ["opencode", "mcp", "list"],
        ["opencode", "run", "--model", "here/scripted", PROMPT],
        settings={
            ".config/opencode/opencode.json": {
                "$schema": "https://opencode.ai/config.json",
                "autoupdate": False,
                "provider": {
                    "here": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": "{url}/v1", "apiKey": "none"},
                        "models": {"scripted": {"name": "scripted", "tool_call": True}},
                    }
                },
            }
        },
    ),
    "codex": Program(
        "@openai/codex",
        ["codex", "mcp", "list"],
        [*("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"), PROMPT],
        {"HERE_KEY": "none"},
        {
            ".codex/config.toml": 'model = "gpt-5"\nmodel_provider = "here"\n\n[model_providers.here]\n'
            'name = "here"\nbase_url = "{url}/v1"\nenv_key = "HERE_KEY"\nwire_api = "responses"\n'
        },
        connects=False,
    ),
    "copilot-cli": Program("@github/copilot", ["copilot", "mcp", "list"], connects=False),
    "gemini": Program("@google/gemini-cli", ["gemini", "mcp", "list"], connects=False),
}


class Model(BaseHTTPRequestHandler):
    """A model that calls the first tool of the hub, and ends when it has the answer."""

    protocol_version = "HTTP/1.1"
    server: Scripted  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._send(b"{}", "application/json")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/messages"):
            events = anthropic(body, self.server.asked(body, tools_of(body)))
        elif path.endswith("/chat/completions"):
            events = chat(self.server.asked(body, tools_of(body)))
        elif path.endswith("/responses"):
            events = responses(self.server.asked(body, tools_of(body)))
        else:
            return self._send(b"{}", "application/json")
        if not body.get("stream"):
            return self._send(json.dumps(plain(body)).encode(), "application/json")
        self._send("".join(events).encode(), "text/event-stream")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


Call = tuple[str, str, dict[str, Any]] | None
"""The namespace, the name and the arguments of a call; `None` to say that it is done."""


class Scripted(ThreadingHTTPServer):
    """The server of a scripted model.

    Attributes:
        shown: The names of the hub's tools in the request with most of them, and whether each is deferred.
        found: The answer of the tool, once the client has handed it back.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Model)
        self.shown: dict[str, bool] = {}
        self.found = ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A program may end while it still has a connection open."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def asked(self, body: Any, tools: list[tuple[str, str, bool]]) -> Call:
        """The next call, with arguments from the request."""
        every = {name: deferred for _, name, deferred in tools if is_ours(name)}
        self.shown = every if len(every) > len(self.shown) else self.shown
        text = json.dumps(body)
        if (at := text.find(ANSWER)) >= 0:
            self.found = text[at : at + len(ANSWER)]
            return None
        listed, searching, calling = (
            next(((space, name) for space, name, _ in tools if name.endswith(end)), None)
            for end in ("lamps_tool_0", "search_tools", "call_tool")
        )
        if listed is not None:
            return *listed, {}
        if searching is None or calling is None:
            return None
        if (grant := grant_in(text)) is None:
            return *searching, {"query": "lamps tool_0", "resolve": 1}
        return *calling, {"grant": grant, "arguments": {}}


def is_ours(name: str) -> bool:
    return "lamps" in name or name.endswith(FIXED_TOOLS)


def grant_in(text: str) -> str | None:
    """The grant in the answer of a search, however often its JSON was quoted."""
    plain_text = text.replace("\\", "")
    at = plain_text.find('"grant":"')
    at = at if at >= 0 else plain_text.find('"grant": "')
    if at < 0:
        return None
    start = plain_text.index('"', at + len('"grant":')) + 1
    return plain_text[start : plain_text.index('"', start)]


def tools_of(body: Any) -> list[tuple[str, str, bool]]:
    """The namespace, the name and the deferral of each tool of a request, in any provider's form."""
    found: list[tuple[str, str, bool]] = []
    for one in body.get("tools") or ():
        is_space = one.get("type") == "namespace"
        for each in one["tools"] if is_space else [one]:
            name = (each.get("function") or each).get("name", "")
            found.append((one["name"] if is_space else "", name, bool(each.get("defer_loading"))))
    return found


def an_id(kind: str) -> str:
    return f"{kind}_{uuid4().hex[:12]}"


def event(data: Any, name: str = "") -> str:
    said = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "") + f"data: {said}\n\n"


def anthropic(body: Any, call: Call) -> Iterator[str]:
    """The events of Anthropic's messages."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": an_id("msg"), "type": "message", "role": "assistant", "model": body.get("model")}
    started = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event({"type": "message_start", "message": started}, "message_start")
    if call is None:
        block, part = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}
    else:
        block = {"type": "tool_use", "id": an_id("toolu"), "name": call[1], "input": {}}
        part = {"type": "input_json_delta", "partial_json": json.dumps(call[2])}
    yield event({"type": "content_block_start", "index": 0, "content_block": block}, "content_block_start")
    yield event({"type": "content_block_delta", "index": 0, "delta": part}, "content_block_delta")
    yield event({"type": "content_block_stop", "index": 0}, "content_block_stop")
    why = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    yield event({"type": "message_delta", "delta": why, "usage": usage}, "message_delta")
    yield event({"type": "message_stop"}, "message_stop")


def plain(body: Any) -> Any:
    """An answer that is not streamed, such as for a title."""
    message = {"role": "assistant", "content": "done"}
    return {
        **{"id": an_id("msg"), "type": "message", "role": "assistant", "model": body.get("model")},
        **{"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"},
        **{"usage": {"input_tokens": 1, "output_tokens": 1}, "object": "chat.completion"},
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


def chat(call: Call) -> Iterator[str]:
    """The events of OpenAI's chat completions."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    delta: dict[str, Any] = {"role": "assistant", "content": "done"}
    if call is not None:
        function = {"name": call[1], "arguments": json.dumps(call[2])}
        made = {"index": 0, "id": an_id("call"), "type": "function", "function": function}
        delta = {"role": "assistant", "tool_calls": [made]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    why = "tool_calls" if call else "stop"
    yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": why}], "usage": usage})
    yield event("[DONE]")


def responses(call: Call) -> Iterator[str]:
    """The events of OpenAI's responses."""
    item: dict[str, Any] = {
        **{"type": "message", "id": "m1", "role": "assistant", "status": "completed"},
        "content": [{"type": "output_text", "text": "done", "annotations": []}],
    }
    if call is not None:
        space = {"namespace": call[0]} if call[0] else {}
        item = {
            **{"type": "function_call", "id": an_id("fc"), "call_id": an_id("call"), "status": "completed"},
            **{"name": call[1], "arguments": json.dumps(call[2])},
            **space,
        }
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    whole = {
        "id": an_id("resp"),
        "object": "response",
        "status": "completed",
        "output": [item],
        "usage": usage,
    }
    begun = {"type": "response.created", "response": {**whole, "status": "in_progress"}}
    yield event(begun, "response.created")
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield event(done, "response.output_item.done")
    yield event({"type": "response.completed", "response": whole}, "response.completed")


@contextmanager
def scripted() -> Iterator[tuple[Scripted, str]]:
    server = Scripted()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, default=ROOT / ".cache" / "clients", metavar="FOLDER")
    parser.add_argument("--files", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    options = parser.parse_args()
    failed = list(checked_files(options.files)) if options.files else []
    chosen = options.names or ([] if options.files else list(PROGRAMS))
    for name in chosen:
        binaries = installed(PROGRAMS[name], options.programs.resolve())
        for tools in (1, 60) if PROGRAMS[name].asks else (1,):
            fault = ran(name, PROGRAMS[name], binaries, tools)
            failed += [fault] if fault else []
    for one in failed:
        print(f"FAILED {one}")
    print(f"{len(failed)} failed")
    return bool(failed)


def installed(program: Program, folder: Path) -> Path:
    """The folder of a program's commands, which npm installs unless they are there."""
    binaries = folder / "node_modules" / ".bin"
    if not (binaries / program.lists[0]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", program.package]
        subprocess.run(command, cwd=folder, check=True, timeout=900)
    return binaries


def ran(name: str, program: Program, binaries: Path, tools: int) -> str:
    """Why a program does not get through to a hub of so many tools; empty if it does."""
    with TemporaryDirectory(prefix="clients") as folder, scripted() as (model, url):
        home, project = Path(folder) / "home", Path(folder) / "project"
        home.mkdir()
        project.mkdir()
        environ = {
            **{"PATH": f"{binaries}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", "HOME": str(home)},
            **{"MCP_TOOLSET_CACHE": "off", "NO_COLOR": "1", "CI": "1"},
            **{key: value.replace("{url}", url) for key, value in program.environ.items()},
        }
        for path, said in program.settings.items():
            text = said if isinstance(said, str) else json.dumps(said)
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text.replace("{url}", url))
        names = [f"tool_{number}" for number in range(tools)]
        upstream = {"tools": names, "label": "lamps", "about": "A lamp. " * 40}
        entry = {"command": sys.executable, "args": [str(UPSTREAM), json.dumps(upstream)]}
        hub = project / "hub.json"
        hub.write_text(json.dumps({"toolset": {"surface": "auto"}, "mcpServers": {"lamps": entry}}))
        done = run(project, environ, "mcp-toolset", "install", name, str(hub), "--scope", "user")
        if "written" not in done:
            return f"{name}: install: {done}"
        told = run(project, environ, *program.lists)
        connected = not program.connects or any(word in told.lower() for word in ("connected", "✓"))
        if "hub" not in told or not connected:
            return f"{name}: {' '.join(program.lists)}: {told[-600:]}"
        print(f"{name}, {tools} tools: its command shows the entry{' and connects' * program.connects}")
        if not program.asks:
            return ""
        asked = run(project, environ, *program.asks)
        if not model.shown:
            # A client may ask its model before its servers have started.
            asked = run(project, environ, *program.asks)
        if not model.found:
            return f"{name}: {' '.join(program.asks[:2])}: {asked[-900:]}"
        kinds = f"{len(model.shown)} tools of ours shown to the model, {sum(model.shown.values())} deferred"
        print(f"{name}, {tools} tools: {kinds}; called {model.found!r}")
        return ""


def run(folder: Path, environ: Mapping[str, str], *words: str) -> str:
    """The output of a command, run in a folder."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN,
        )
    except subprocess.TimeoutExpired:
        return f"{words[0]} has not ended within {WITHIN} s"
    return done.stdout


def checked_files(folder: Path) -> Iterator[str]:
    """The faults of adding and removing our entry, and of adopting and bringing back, in real files."""
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        if path.parent.name not in CLIENTS:
            continue
        name = cast("ClientName", path.parent.name)
        before = path.read_bytes()
        with TemporaryDirectory(prefix="clients") as place:
            home, project = Path(place) / "home", Path(place) / "project"
            machine = Machine(home, sys.platform, {}, project)
            project.mkdir(parents=True)
            client = CLIENTS[name]
            file = locate(client, "user", machine)[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(before)
            words = ["https://here.test/mcp"]
            plan = install.plan_install(name, "ours", words, machine=machine, scope="user")
            install.apply(plan)
            install.apply(install.plan_uninstall(name, "ours", machine=machine, scope="user"))
            if file.read_bytes() != before:
                yield f"{path}: our entry was added and removed, and the file is another one"
                file.write_bytes(before)
            moved = install.plan_adoption(name, machine, "user")
            install.adopt(moved, name, machine)
            install.restore(install.plan_restoration(name, machine, "user"), machine)
            if file.read_bytes() != before:
                yield f"{path}: its servers were adopted and brought back, and the file is another one"
        print(f"{path}: {len(moved.names)} servers there and back, {len(moved.left)} stay")


if __name__ == "__main__":
    sys.exit(main())
