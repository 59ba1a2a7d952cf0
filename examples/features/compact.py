from mcp_toolset import Toolset, compact_listing, help_text, tool


@tool
def move(source: str, target: str, overwrite: bool = False) -> str:
    """Move a file. Folders are moved with everything in them.

    Args:
        source: The file.
        target: Where it goes.
        overwrite: Whether a file that is there may be replaced.
    """
    return target


view = Toolset(move).view()
(stub,) = compact_listing(view)
print(stub.name, "|", stub.description)
print(help_text(view, ["move"]).splitlines()[0])
