from shop import shop

from mcp_toolset import HookSet, Reject, RunNormally, ToolCall, serve

hooks = HookSet()


@hooks.execution("cancel_order")
async def keep_orders_of_b(call: ToolCall) -> RunNormally | Reject:
    if call.arguments["order"].startswith("B"):
        return Reject("orders of customer B are cancelled by phone")
    return RunNormally(call.arguments)


if __name__ == "__main__":
    serve(shop, hooks=hooks)
