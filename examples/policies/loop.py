from mcp_toolset import Identity, Rules, Toolset, tool
from mcp_toolset.policy import Policy, PolicyGuard
from mcp_toolset.rounds import RoundContext


@tool
def cancel_order(number: int) -> str:
    """Cancel an order."""
    return f"cancelled {number}"


POLICY = Policy(deny=["cancel_*"], roles={"manager": Policy(allow=["*"])})


async def cancel(user: Identity) -> str:
    rules = Rules(guards=[PolicyGuard(POLICY)])
    context = RoundContext(principal=user)
    result = await Toolset(cancel_order).execute("cancel_order", {"number": 7}, context, rules=rules)
    return result.text
