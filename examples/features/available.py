from mcp_toolset import Toolset, tool
from mcp_toolset.errors import ToolsetError
from mcp_toolset.rounds import ToolAvailability, ToolRequirement


@tool
def read(name: str) -> str:
    """Read a file."""
    return name


@tool
def write(name: str) -> str:
    """Write a file."""
    return name


admin = Toolset(tool(name="wipe")(lambda: "wiped")).off()
tools = Toolset(read, write, admin)
for availability in (
    ToolAvailability.default(),
    ToolAvailability.all(),
    ToolAvailability.only(admin),
    ToolAvailability.default_plus("wipe", "read"),
):
    print(list(tools.view(availability)))
exported = tools.view().export("openai", requirement=ToolRequirement.specific(read))
print(exported.tool_choice)
print(exported.tools[0]["function"]["parameters"]["properties"])
for availability, requirement in (
    (ToolAvailability.default(), ToolRequirement.specific("wipe")),
    (ToolAvailability.only(), ToolRequirement.at_least_one()),
):
    try:
        tools.view(availability).export("openai", requirement=requirement)
    except ToolsetError as fault:
        print(fault)
