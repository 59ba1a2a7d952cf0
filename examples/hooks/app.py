from typing import Literal

from pydantic import BaseModel

from mcp_toolset import Complete, HookSet, Reject, RunNormally, ToolCall, ToolDefinition, Toolset, serve, tool
from mcp_toolset.middleware import OutputFormatter, PermissionChecker


class WeatherArgs(BaseModel):
    city: str


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"It is sunny in {city}."


hooks = HookSet()


@hooks.execution("weather")
async def no_blank_city(call: ToolCall, input: WeatherArgs) -> RunNormally | Complete | Reject:
    return RunNormally(input) if input.city.strip() else Reject("city must not be blank")


@hooks.description("weather")
async def metric(definition: ToolDefinition) -> str | None:
    return f"{definition.description} Use metric units."


def policy(call: ToolCall) -> Literal["allow", "ask"]:
    return "allow" if call.name == "weather" else "ask"


if __name__ == "__main__":
    serve(Toolset(weather), hooks=hooks, middleware=[PermissionChecker(policy), OutputFormatter(4000)])
