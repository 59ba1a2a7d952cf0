from mcp_toolset import ToolDefinition
from mcp_toolset.search import SearchIndex

index = SearchIndex(
    [
        ToolDefinition("create_refund", "Return a charge to the card it came from."),
        ToolDefinition("get_forecast", "The weather of the coming days."),
        ToolDefinition("list_flights", "Flights between two airports on a date."),
    ]
)

for query in ("give the buyer their money back", "will it rain tomorrow", "get_forecast", "xyzzy"):
    print(query, "->", [hit.name for hit in index.search(query, limit=1)])
