"""A catalog behind search, for many users: grants in a file, and a say on who may have which tool."""

import os

from mcp_toolset import (
    AccessDenied,
    GrantLedger,
    SqliteGrantStore,
    ToolBinding,
    ToolContext,
    Toolset,
    ToolsetServer,
    serve,
    tool,
)


@tool(read_only=True)
def read_invoice(number: int) -> str:
    """Read an invoice of the archive."""
    return f"invoice {number}: paid"


@tool
def delete_invoice(number: int) -> str:
    """Delete an invoice from the archive."""
    return f"invoice {number} is gone"


def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
    """Nobody but the accountant deletes; others find the tool and are told whom to ask."""
    if binding.name == "delete_invoice" and context.principal != "accountant":
        return AccessDenied("unauthorised", "ask the accountant to do it")
    return None


server = ToolsetServer(
    Toolset(read_invoice, delete_invoice).deferred(),
    grants=GrantLedger(SqliteGrantStore(os.environ["GRANTS"]), bearer_uses=20),
    access=access,
)

if __name__ == "__main__":
    serve(server)
