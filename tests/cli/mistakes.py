"""Mistakes on the command line, a line each: what is typed, the exit code, and words of the answer.

`files` writes what the lines are about. Words before the command are environment variables. {taken} is a port
that is taken, {locked} one of a server that wants a token, {python} this interpreter. The answers are kept in
`screens/mistakes`, to be read:

python -m tests.cli.mistakes    writes them again
"""

import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cli.commandline import KIT, environment
from tests.cli.in_process import run_on_terminal

from mcp_toolset.tools.screen import wrapped

SCREEN = Path(__file__).with_name("screens") / "mistakes" / "60-and-100.txt"
WIDTHS = (60, 100)

COMMANDS = """
2 lost | 'lost' | --help
2 kit.py | 'kit.py' | mcp-toolset list kit.py
2 serv kit.py | serv | serve
2 list --jason kit.py | --jason | --json | mcp-toolset list --help
2 list kit.py --timeout | --timeout has no value | SECONDS
2 list kit.py --timeout soon | --timeout | 'soon'
2 list kit.py --timeout 0 | --timeout | 0
2 list | TARGET is missing | a command after --
2 list -- | nothing follows -- | write the command
2 list kit.py more | 'more' | one word too many
2 list kit.py -- x | 'kit.py' | the command after -- is the target
2 search kit.py | QUERY is missing | kit.py
2 search kit.py sort --limit 1000 | --limit | 1000 | 100
2 call kit.py | TOOL is missing
2 get kit.py | WHAT is missing
2 get kit.py note://today a=b | 'a=b' | takes no arguments
2 check mcp.json --port 80 | --port | add --machine
2 explain kit.py echo boom | 'boom' | one tool at a time
2 pin kit.py --check --accept | --check | --accept
2 serve kit.py --transport pigeon | --transport | 'pigeon' | stdio
2 serve kit.py --port 70000 | --port | 70000 | 65535
2 serve kit.py --port http | --port | 'http'
2 serve kit.py --issuer https://host --transport http | --issuer needs --audience
2 serve kit.py --auth-token-env TOKEN | --transport http
2 serve kit.py --log-level loud | --log-level | 'loud'
2 new server | NAME is missing
2 new robot my-tools | 'robot' | server
2 install notepad kit.py | 'notepad' | claude-desktop
2 install curser kit.py | 'curser' | cursor
2 install cursor kit.py --env KEY | --env KEY | KEY=VALUE
2 install cursor kit.py --scope world | --scope | 'world' | project
2 install cursor kit.py --adopt | --adopt | leave TARGET out
2 uninstall cursor | NAME is missing
2 uninstall | CLIENT is missing
2 uninstall cursor git --adopted | --adopted | leave NAME out
2 uninstall cursor --adopted --force | --force | leave it out
2 install cursor --adopt --force | --force | leave it out
2 list kit.py --clients | --clients | leave TARGET out
2 list --clients --deferred | --deferred | leave it out
2 list kit.py --tokens | --tokens | add --clients
2 list kit.py --prompts --servers | --prompts | --servers
2 list kit.py --json=yes | --json takes no value
2 enable mcp.json | SERVER | missing
2 login | SERVER | --list
2 login git --list | --list
2 logout | SERVER|URL is missing
2 secret set 'my secret' | 'my secret' | no name of a secret
2 secret set github hunter2 | a secret is no argument
2 secret forget | forget
2 approvals grant | ID
2 approvals allow 17 | 'allow' | grant
2 journal show | ID
2 journal settle 17 | --done TEXT | --never
2 journal list --limit 0 | --limit | 0
2 logs --since yesterday | 'yesterday' | 10m
2 logs --grep ( | regular expression
2 logs --level loud | --level | 'loud' | warning
2 stats --since ever | 'ever' | 7d
2 search learning.json sort --learned | 'sort' | one word too many
2 search kit.py sort --yes | --yes | --forget
2 search learning.json --learned --forget | --learned | --forget
2 search learning.json --learned --limit 5 | --limit | leave it out
2 audit read audit.jsonl | read
2 audit show audit.jsonl --since noon | 'noon'
2 check --port 0 | --port | 0
"""
"""Mistakes in the line itself."""

FILES = """
1 list nowhere.json | nowhere.json | no such file | check the path
1 call nowhere.py add | nowhere.py | no such file
1 list nowhere --servers | 'nowhere' | names nothing
1 list kit:tool_of_mine | kit:tool_of_mine | no 'tool_of_mine'
1 list no_module:tools | no_module | no such module
1 list kit.py:ecko | kit.py:ecko | did you mean echo?
1 search . sort | . | a folder | name a file in it
1 check folder.json | folder.json | a folder
1 list unreadable.json | unreadable.json | cannot be read
1 list unreadable.py | unreadable.py
1 list picture.json | picture.json | UTF-8
1 check broken.json | broken.json | line 3 column 22 | not valid JSON
1 list empty.json | empty.json | the file is empty
1 list list.json | list.json | object
1 list nothing.json | nothing.json | names no servers | mcpServers
1 list options.json | options.json | toolset.deferd | did you mean `deferred`?
1 list key.json | key.json | mcpServers.git.comand | did you mean `command`?
1 list pigeon.json | mcpServers.git.type | stdio, http or sse
1 list variable.json | mcpServers.git.env.TOKEN | NO_SUCH_TOKEN is not set
1 list dead.json | git | no-such-program | command not found | install it
1 check kit.py | kit.py | check reads configuration files
1 list syntax.py | syntax.py | line 1 | SyntaxError
1 list imports.py | imports.py | line 1 | install not_there_1
1 list raises.py | raises.py | line 2 | ZeroDivisionError
1 list plain.py | plain.py | has no tools | @tool
1 list two.py | two.py | 2 times | two.py:attribute
1 list many.py | many.py:first | many.py:second
1 list number.py | number.py | has no tools
1 list number.py:tools | number.py:tools | int | name a tool
1 serve untyped.py | untyped.py:3 | 'a' has no type annotation
1 install cursor nowhere.py | nowhere.py | no such file
1 pack nowhere.py | nowhere.py | no such file
1 pack https://host/mcp | https://host/ | pack
1 pack plain.py | plain.py | has no tools
1 audit show nowhere.jsonl | nowhere.jsonl | there is no audit log
1 audit verify nowhere.jsonl | nowhere.jsonl
2 audit verify kit.py --key-env NO_SUCH_KEY | NO_SUCH_KEY is not set
2 pack kit.py --ask TOKEN:planet | --ask TOKEN | NAME:KIND
1 approvals list --file nowhere.sqlite3 | nowhere.sqlite3
1 journal list --file nowhere.sqlite3 | nowhere.sqlite3 | does not exist | name the file
1 journal list --file kit.py | kit.py
1 stats nowhere.json | nowhere.json
1 logs nowhere.json | nowhere.json | no such file
1 search nowhere.json --learned | nowhere.json | no such file
1 login git --config nowhere.json | nowhere.json | no such file
1 enable nowhere.json git | nowhere.json | no such file
1 new server folder | folder | exists already
2 new server 'My Tools' | 'My Tools' | cannot name a module
2 list kit.py --token-env HOME | --token-env | are for a URL
"""
"""Files and targets that are missing, unreadable or wrong."""

NAMES = """
1 call kit.py ech text=x | ech | no such tool in kit.py | did you mean echo?
1 call kit.py note://today | the address of a resource | mcp-toolset get
1 call kit.py echo | echo | "text" is a required property | echo(text: string)
1 call kit.py echo text=x tone=high | tone | it takes echo(text: string)
1 call kit.py sort_names '{"names": 5}' | names | "array"
2 call kit.py echo hello | 'hello' | key=value
2 call kit.py echo {text} | line 1 column 2 | not valid JSON
2 call kit.py echo [1] | a JSON array, not an object
2 call kit.py echo text=a text=b | text | 2 times
2 call kit.py echo - | stdin | not valid JSON
1 call kit.py boom | boom | the pump is dry
1 get kit.py revue | revue | no such prompt | mcp-toolset list kit.py --prompts
1 get kit.py note://today | note://today | no such resource | list kit.py --resources
1 search kit.py sort --server git | --server git | none is mounted
1 explain kit.py ecko | 'ecko' | did you mean echo?
2 explain kit.py echo --as [1] | --as [1] | a key is written as
1 enable dead.json gitt | dead.json | no server 'gitt' | did you mean `git`?
1 disable dead.json git/ | 'git/' | names no tool
1 login gitt --config dead.json | dead.json | no server 'gitt' | did you mean `git`?
1 login git --config dead.json | dead.json | 'git' is a program
1 login web --config open.json | open.json | 'web' has no `auth`
1 login ftp://host | ftp | https
1 login git | git | --config FILE
1 logout gitt --config dead.json | dead.json | no server 'gitt'
1 secret remove github | 'github' | secret list
1 journal show 3f2a | 3f2a | no call
1 approvals grant 3f2a | 3f2a
1 search learning.json --forget --as nora | nora
2 install cursor kit.py --name 'my tools' | 'my tools' | cannot name a server
2 install windsurf kit.py --scope project | --scope project | Windsurf has no such scope
1 install cursor --adopt | Cursor | mcp.json
1 install zed --adopt --yes | Zed
1 uninstall cursor --adopted | cursor | not adopted
1 uninstall goose --adopted --dry-run | goose
"""
"""Names that are not there, and arguments that do not fit."""

PLACES = """
1 list http://127.0.0.1:9/mcp | http://127.0.0.1:9/ | connection | check that it runs
1 serve http://127.0.0.1:9/mcp | http://127.0.0.1:9/ | connection
1 list http://127.0.0.1:{locked}/mcp | 127.0.0.1 | needs login | --token-env
1 list ftp://host/mcp | ftp://host/ | https://host/path
1 list http:// | http:// | not a web address
2 list https://host/mcp --token-env NO_SUCH_TOKEN | NO_SUCH_TOKEN | not set
2 list https://host/mcp --header X-Key | --header | NAME:VALUE
1 list -- no-such-program -x | no-such-program | command not found
1 list -- {python} -c pass | check that it runs
1 serve kit.py --transport http --port {taken} --insecure | 127.0.0.1 | in use | --port
1 serve kit.py --transport http --host 10.255.255.1 --insecure | 10.255.255.1 | --host
2 serve kit.py --transport http --shared http://host | shared store | redis://
1 serve kit.py --transport http --port 0 --shared redis://127.0.0.1:9 | 127.0.0.1:9 | check that it runs
1 MCP_TOOLSET_SHARED=host:6379 serve kit.py --transport http --port 0 | shared store | redis://
1 COLUMNS=abc list nowhere.py | no such file
1 COLUMNS=-5 list nowhere.py | no such file
1 MCP_TOOLSET_CACHE=kit.py/x list dead.json | command not found
1 MCP_TOOLSET_LOG=off logs | MCP_TOOLSET_LOG | unset
1 MCP_TOOLSET_LOG=kit.py logs | kit.py
1 MCP_TOOLSET_APPROVALS=off approvals | MCP_TOOLSET_APPROVALS | unset
1 MCP_TOOLSET_JOURNAL=folder journal | folder
2 new server /dev/null/x | cannot name a module
1 HOME=/dev/null install cursor kit.py | /dev/null
1 HOME=/dev/null login git --config dead.json | 'git' is a program
1 HOME= list nowhere.py | no such file
"""
"""Addresses, programs, variables of the environment, and homes that cannot be used."""


class Mistake(NamedTuple):
    """One line: what is typed, the exit code, and words of the answer."""

    line: str
    code: int
    says: tuple[str, ...]


def mistakes() -> Iterator[Mistake]:
    for each in "".join((COMMANDS, FILES, NAMES, PLACES)).split("\n"):
        if not each:
            continue
        typed, *says = each.split(" | ")
        code, _, line = typed.partition(" ")
        yield Mistake(line, int(code), tuple(says))


def files(folder: Path) -> None:
    """Write what the lines are about."""
    texts = {
        "kit.py": KIT,
        "broken.json": '{"mcpServers": {\n  "git": {\n    "command": "uvx" "x"\n}}}\n',
        "empty.json": "",
        "list.json": "[]\n",
        "nothing.json": "{}\n",
        "options.json": '{"mcpServers": {"git": {"command": "git"}},\n "toolset": {"deferd": true}}\n',
        "key.json": '{"mcpServers": {\n  "git": {"comand": "uvx"}}}\n',
        "pigeon.json": '{"mcpServers": {\n  "git": {"type": "pigeon", "url": "https://host/mcp"}}}\n',
        "variable.json": '{"mcpServers": {"git": {"command": "x", "env": {"TOKEN": "${NO_SUCH_TOKEN}"}}}}\n',
        "dead.json": '{"mcpServers": {"git": {"command": "no-such-program"}}}\n',
        "open.json": '{"mcpServers": {"web": {"url": "https://host/mcp"}}}\n',
        "learning.json": '{"mcpServers": {"git": {"command": "git"}}, "toolset": {"learning": true}}\n',
        "syntax.py": "def broken(:\n",
        "imports.py": "import not_there_1\n",
        "raises.py": "x = 1\ny = x / 0\n",
        "plain.py": "x = 1\n",
        "two.py": "from mcp_toolset import serve\ndef a() -> None: ...\nserve(a)\nserve(a)\n",
        "many.py": "from mcp_toolset import Toolset\ndef a() -> None: ...\n"
        "first, second = Toolset(a), Toolset(a)\n",
        "number.py": "tools = 5\n",
        "untyped.py": "from mcp_toolset import tool\n\n@tool\ndef add(a):\n    return a\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    for name in ("folder", "folder.json"):
        (folder / name).mkdir()
    for name in ("unreadable.json", "unreadable.py"):
        (folder / name).symlink_to("/proc/self/mem")
    (folder / "picture.json").write_bytes(b"\x89PNG\xff\xfe")


_LOCKED = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Locked(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_GET = do_POST
    def log_message(self, *said): pass
server = HTTPServer(("127.0.0.1", 0), Locked)
print(server.server_port, flush=True)
server.serve_forever()
"""
"""A server that wants a token; a process, as a command line that leaves a thread behind is a fault."""


@contextmanager
def surroundings() -> Generator[dict[str, str]]:
    """What stands for the words in braces: a port that is taken, a server that wants a token."""
    command = [sys.executable, "-IS", "-c", _LOCKED]
    with socket.socket() as taken, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as locked:
        try:
            assert locked.stdout is not None
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            yield {"{taken}": port, "{locked}": locked.stdout.readline().strip(), "{python}": sys.executable}
        finally:
            locked.kill()


_SPINNER = re.compile(r"(?s)\x1b\[\?25l.*?\x1b\[1A\x1b\[2K")
"""A line that moves, and is wiped out when the command has its answer."""


def answer(mistake: Mistake, columns: int, folder: Path, words: Mapping[str, str]) -> tuple[int, str]:
    """The exit code, and what a terminal shows in the end."""
    line = mistake.line
    for word, meant in words.items():
        line = line.replace(word, meant)
    typed = shlex.split(line)
    given = dict(word.split("=", 1) for word in typed if re.match("[A-Z_]+=", word))
    env = environment(folder, {"COLUMNS": str(columns), "TERM": "xterm", **given})
    code, shown = run_on_terminal(typed[len(given) :], folder, env, columns)
    return code, _SPINNER.sub("", shown)


def drawn(mistake: Mistake, shown: str, folder: Path, words: Mapping[str, str]) -> str:
    """The answer as it is kept: with both widths, and without the places of this machine."""
    message = re.sub(r"\n(?!mcp-toolset[a-z ]*: |error: )", " ", shown.rstrip("\n"))
    for word, meant in {**words, "/home/ann": str(folder)}.items():
        message = message.replace(meant, word.strip("{}"))
    return "\n".join(
        [f"$ {mistake.line}    [{mistake.code}]", *(wrapped(message, width) for width in WIDTHS), ""]
    )


def every_answer() -> Iterator[tuple[Mistake, int, str, str]]:
    """Each mistake with its exit code, what 60 columns show, and what is kept of it."""
    with tempfile.TemporaryDirectory() as name, surroundings() as words:
        folder = Path(name).resolve()
        files(folder)
        for mistake in mistakes():
            code, shown = answer(mistake, WIDTHS[0], folder, words)
            yield mistake, code, shown, drawn(mistake, shown, folder, words)


if __name__ == "__main__":
    kept = [screen for *_, screen in every_answer()]
    SCREEN.parent.mkdir(exist_ok=True)
    SCREEN.write_text("\n".join(kept))
    sys.stdout.write(f"{len(kept)} mistakes\n")
