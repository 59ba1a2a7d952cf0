import anyio

from mcp_toolset import HookSet, Reject, Rules, ToolCall, Toolset, ToolsetServer, tool
from mcp_toolset.errors import ToolsetError


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def refusing(name: str) -> Rules:
    hooks = HookSet()

    @hooks.execution(name)
    async def refuse(call: ToolCall, input: dict[str, str]) -> Reject:
        return Reject("nothing is deleted here")

    return Rules(hooks=hooks)


async def main() -> None:
    files = Toolset(delete).prefixed("files")
    async with ToolsetServer(files, rules=refusing("delete")) as server:
        print((await server.call_tool("files_delete", {"path": "a"})).text)
    try:
        async with ToolsetServer(files, rules=refusing("delte")):
            pass
    except ToolsetError as fault:
        print(fault)
    try:
        files.off("files_delte")
    except ToolsetError as fault:
        print(fault)


if __name__ == "__main__":
    anyio.run(main)
