"""A server whose tool pays: `desk.py FOLDER OPTIONS`, as a process or within one; FOLDER has its payments."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp_toolset import ToolContext, Toolset, ToolsetServer, serve, tool
from mcp_toolset.extending import Extension

LONG = " and so on" * 60


RECEIPTS = "com.example/receipts"


class Receipts(Extension):
    """An extension of the protocol that the desk declares."""

    identifier = RECEIPTS

    def settings(self) -> dict[str, Any]:
        return {"paper": True}


def tools(folder: Path, *, asks: bool = False, long: bool = False, safe: bool = False) -> Toolset:
    """The tools; a file `words` in the folder describes `pay`, and `flaky` has its next call fail."""
    words = folder / "words"

    @tool(description=words.read_text() if words.exists() else "Pay an amount.", read_only=safe)
    async def pay(context: ToolContext, amount: int, stamp: str = "") -> str:
        if asks:
            answer = await context.elicit(f"Pay {amount}?", key=f"pay {amount}")
            if not answer.accepted:
                return "not paid"
        if (flaky := folder / "flaky").exists():
            flaky.unlink()
            raise ValueError("out of order")
        headers = context.meta.get("headers") or ""
        paid = folder / "paid"
        with paid.open("a") as file:
            file.write(json.dumps([amount, stamp, str(headers)]) + "\n")
        return f"paid {amount}, receipt {len(paid.read_text().splitlines())}{LONG if long else ''}"

    @tool
    def secret() -> str:
        """Tell the secret."""
        (folder / "told").touch()
        return "42"

    return Toolset(pay, secret)


def made(folder: Path, *, extends: bool = False, **options: Any) -> ToolsetServer:
    """The tools as a server."""
    extensions = [Receipts()] if extends else []
    return ToolsetServer(tools(folder, **options), name="desk", capabilities=["ask"], extensions=extensions)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with (place / "starts").open("a") as starts:
        starts.write("x")
    serve(made(place, **json.loads(sys.argv[2])))
