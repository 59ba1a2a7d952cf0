import anyio

from mcp_toolset import HookSet, Reject, RunNormally, ToolCall, Toolset, tool
from mcp_toolset.errors import RoundError
from mcp_toolset.rounds import CallResult, ToolRound

runs: list[str] = []


@tool
async def weather(city: str) -> str:
    """Tell the weather."""
    runs.append(city)
    return f"It is sunny in {city}."


hooks = HookSet()


@hooks.execution("weather")
async def known(call: ToolCall, input: dict[str, str]) -> RunNormally | Reject:
    return Reject("nobody lives there") if input["city"] == "Atlantis" else RunNormally(input)


def asked(id: str, name: str, arguments: str) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        asked("c1", "weather", '{"city": "Bern"}'),
        asked("c2", "weather", '{"city": "Atlantis"}'),
        asked("c3", "wether", '{"city": "Bern"}'),
    ],
}


async def main() -> None:
    round = ToolRound.from_openai(message, Toolset(weather).view())
    plan = await round.apply(hooks)
    print([call.id for call in plan.pending], [one.call.id for one in plan.rejected])
    print([(issue.call.id, issue.reason) for issue in plan.issues])
    results = await plan.run_pending()
    try:
        plan.commit([*results, CallResult("c9", "weather", {}, results[0].result)])
    except RoundError as fault:
        print(fault)
    for answer in plan.commit(results).to_openai()[1:]:
        print(answer["tool_call_id"], answer["content"])
    print(runs)


if __name__ == "__main__":
    anyio.run(main)
