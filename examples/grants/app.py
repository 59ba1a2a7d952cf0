"""A catalog behind search, for many users: grants in a file, and a say on who may have which tool."""

import os

from mcp_toolset import ToolBinding, ToolContext, Toolset, ToolsetServer, serve, tool
from mcp_toolset.auth import StaticTokens
from mcp_toolset.grants import AccessDenied, GrantLedger


@tool(read_only=True)
def read_invoice(number: int) -> str:
    """Read an invoice of the archive."""
    return f"invoice {number}: paid"


@tool
def delete_invoice(number: int) -> str:
    """Delete an invoice from the archive."""
    return f"invoice {number} is gone"


def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
    """Accountants alone delete; others find the tool and are told whom to ask."""
    caller = context.identity
    if binding.name == "delete_invoice" and (caller is None or "accountant" not in caller.roles):
        return AccessDenied("unauthorised", "ask the accountant to do it")
    return None


accountants = StaticTokens.from_env("ann=ANN_TOKEN", roles=["accountant"])
others = StaticTokens.from_env("bob=BOB_TOKEN")
server = ToolsetServer(
    Toolset(read_invoice, delete_invoice).deferred(),
    grants=GrantLedger(os.environ["GRANTS"], bearer_uses=20),
    access=access,
    auth=[accountants, others],
)

if __name__ == "__main__":
    serve(server)
