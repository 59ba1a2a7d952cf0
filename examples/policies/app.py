from mcp_toolset import Toolset, serve, tool
from mcp_toolset.policy import Policy


@tool(read_only=True)
def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}"


@tool
def cancel_order(number: int) -> str:
    """Cancel an order."""
    return f"cancelled {number}"


policy = Policy(deny=["cancel_*"], roles={"clerk": Policy(ask=["cancel_*"]), "manager": Policy(allow=["*"])})

if __name__ == "__main__":
    serve(Toolset(find_order, cancel_order), policy=policy)
