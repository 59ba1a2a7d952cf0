import json

from mcp_toolset import Tool, ToolBuilder
from mcp_toolset.errors import DefinitionError

stored = (
    ToolBuilder("dump", "Write a value as JSON.")
    .param("value", "any", "What to write.")
    .param("indent", "integer", default=2)
    .build("json:dumps")
)
text = json.dumps(stored.to_data())
again = Tool.from_data(json.loads(text))
print(again)
print(again.definition == stored.definition)
without_handler = ToolBuilder("sign", "Sign a contract.").param("contract", "string").build()
print(without_handler.waits)
try:
    ToolBuilder("sign").manual(None)  # pyright: ignore[reportArgumentType]
except DefinitionError as fault:
    print(fault)
