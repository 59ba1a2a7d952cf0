"""A toolset that carries its instructions, its hook, its limit of results and its state with it."""

from typing import Any

from mcp_toolset import (
    HookSet,
    Reject,
    Rules,
    RunNormally,
    SessionState,
    ToolCall,
    ToolContext,
    Toolset,
    tool,
)
from mcp_toolset.middleware import OutputFormatter

hooks = HookSet()
opened = SessionState(set[str])


class Crm(Toolset):
    """Customers and their orders."""

    instructions = "Look up a customer before you change an order."

    @tool(read_only=True)
    def find_customer(self, name: str, context: ToolContext) -> str:
        """Find a customer by name."""
        opened.of(context).add(name)
        return f"{name}: " + "order, " * 200

    @tool
    def change_order(self, customer: str, order: int) -> str:
        """Change an order."""
        return f"order {order} of {customer} is changed"


@hooks.execution("change_order")
async def is_known(call: ToolCall, input: dict[str, Any], context: ToolContext) -> RunNormally | Reject:
    if input["customer"] in opened.of(context):
        return RunNormally(input)
    return Reject(f"look up {input['customer']} first")


crm = Crm().carrying(Rules(hooks=hooks, middleware=[OutputFormatter(80)]))
