import anyio

from mcp_toolset import Toolset, tool
from mcp_toolset.errors import DefinitionError, UnknownToolError


class Calculator(Toolset):
    @tool
    @staticmethod
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


class AppTools(Toolset):
    calculator = Calculator().prefixed("calc")
    clock = now


async def main() -> None:
    tools = AppTools()
    print(tools.names())
    print(tools.find(Calculator.add).name)
    print((await tools.execute(Calculator.add, {"a": 20, "b": 22})).structured)
    try:
        tools.find("add")
    except UnknownToolError as fault:
        print(fault)
    try:
        tools.including(now)
    except DefinitionError as fault:
        print(str(fault).split(";")[0].split(" (")[0])


if __name__ == "__main__":
    anyio.run(main)
