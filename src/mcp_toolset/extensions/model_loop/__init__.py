"""Programs that ask a model themselves: the calls of its replies, run as rounds, and its search for tools."""

MENDS = {"export": "use ToolRound.of(message, export)"}
