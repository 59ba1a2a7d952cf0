import anyio
from pydantic import BaseModel

from mcp_toolset import HookSet, InputTool, Reject, RunNormally, ToolCall, ToolContext, Toolset, tool
from mcp_toolset.rounds import BackgroundWork, EventLog, RejectedInput, RoundContext, ToolRound


class Order(BaseModel):
    """Order something."""

    article: str


order = InputTool.of(Order, output=str, name="order")
hooks = HookSet()


@hooks.execution(order)
async def no_blank(call: ToolCall, input: Order) -> RunNormally | Reject:
    return RunNormally(input) if input.article else Reject("say which article")


@tool
async def bake(context: ToolContext) -> str:
    """Bake a cake."""

    async def baking() -> str:
        return "a cake"

    context.append_event("oven.on", {"degrees": 180})
    return await context.background.result(context.background.start(baking))


async def main() -> None:
    view, log = Toolset(bake).view(), EventLog()
    async with BackgroundWork() as work:
        for context in (RoundContext(background=work, events=log), RoundContext(background=work)):
            plan = ToolRound.from_calls([ToolCall("bake", {}, "c1")], view).plan
            for done in (await plan.run_pending(context=context)).results:
                print(done.result.text)
    print([(event.tool, event.kind, event.data) for event in log.since()])

    call = order.decode(ToolCall("order", {"article": ""}, "c2"))
    answer = await call.hook(hooks)
    if isinstance(answer, RejectedInput):
        print(answer.completed.id, answer.reason)


if __name__ == "__main__":
    anyio.run(main)
