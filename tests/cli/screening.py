"""Every screen of the command line, drawn by the real commands on a terminal; one process draws them all.

python -m tests.cli.screening    writes them again to tests/cli/screens, to be read before they are committed
"""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

from tests.cli.pseudo import python, terminal

SCREENS = Path(__file__).with_name("screens")
WIDTHS = (60, 80, 120)

SHOP = '''
from mcp_toolset import Prompts, RemoteToolset, Toolset, ToolsetServer, tool
from mcp_types import Resource, TextResourceContents

@tool(read_only=True)
def find_orders(customer: str, since: str = "", status: str = "open") -> list[str]:
    """Find the orders of a customer, newest first, with the state of their delivery and payment."""
    return []

@tool
def cancel_order(number: int, reason: str) -> str:
    """Cancel an order that was not sent yet."""
    return ""

@tool(read_only=True)
def list_available_warehouse_locations() -> list[str]:
    """List warehouses."""
    return []

prompts = Prompts()

@prompts.add
def review(language: str, tone: str = "friendly") -> str:
    """Write a review of a product in the language and in the tone that the reader expects."""
    return f"Review it in {language}."

class Notes:
    async def list_resources(self):
        described = "What is to be done today, by whom, and until when at the latest."
        return [Resource(uri="note://today", name="today", mime_type="text/plain", description=described)]
    async def list_resource_templates(self):
        return []
    async def read_resource(self, uri):
        if uri not in ("note://today", "urn:note:today"):
            raise LookupError("Resource not found")
        return [TextResourceContents(uri=uri, text="Buy milk.")]
    def on_change(self, callback):
        return lambda: None

store = ToolsetServer(Toolset(find_orders, list_available_warehouse_locations), name="store")
server = ToolsetServer(
    Toolset(
        cancel_order,
        RemoteToolset(store.lowlevel, name="warehouse").prefixed("wh"),
        RemoteToolset(["no-such-program"], name="accounting"),
    ),
    name="shop", prompts=prompts, resources=Notes(),
)
'''

COMMANDS = {
    "help": ["--help"],
    "help-serve": ["serve", "--help"],
    "list": ["list", "shop.py"],
    "list-prompts": ["list", "shop.py", "--prompts"],
    "list-resources": ["list", "shop.py", "--resources"],
    "search": ["search", "shop.py", "orders of a customer"],
    "list-servers": ["list", "shop.py", "--servers"],
    "mistake": ["call", "shop.py", "cancel_ordr"],
}

_DRAW = """
import json, os, sys
from mcp_toolset.cli import mount as servers
from mcp_toolset.cli.main import main
class Still:
    def __init__(self, server): pass
    def __enter__(self): pass
    def __exit__(self, *fault): pass
from mcp_toolset.cli import mount
# A line that moves is no part of a screen that can be read afterwards.
mount.opening = servers.opening = Still
for width in json.loads(sys.argv[1]):
    os.environ["COLUMNS"] = str(width)
    for name, arguments in json.loads(sys.argv[2]).items():
        print(f"<{name}-{width}>", flush=True)
        main(arguments)
        print("</>", flush=True)
"""


def drawn(folder: Path) -> dict[str, str]:
    """The screens as they are now, by name, with their escape sequences."""
    (folder / "shop.py").write_text(SHOP)
    program = [*python(_DRAW), json.dumps(WIDTHS), json.dumps(COMMANDS)]
    with terminal(program, folder, columns=200) as screen:
        assert screen.end() == 0, screen.screen
    return dict(re.findall(r"(?s)<([a-z-]+\d+)>\n(.*?)</>\n", screen.screen))


def plain(screen: str) -> str:
    """A screen without escape sequences."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    return "\n".join(line.rstrip() for line in text.split("\n"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, screen in drawn(Path(folder)).items():
            (SCREENS / f"{name}.txt").write_text(plain(screen))
    sys.stdout.write(f"{len(os.listdir(SCREENS))} screens\n")
