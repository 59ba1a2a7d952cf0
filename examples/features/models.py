from pydantic import BaseModel, Field

from mcp_toolset import InputTool, ToolCall, Toolset, tool_input
from mcp_toolset.errors import ToolsetError


@tool_input(name="book_table", output=str)
class Booking(BaseModel):
    """Book a table in a restaurant."""

    restaurant: str
    guests: int = Field(ge=1, description="How many people come")


@tool_input
class Cancel(BaseModel):
    """Cancel a booking."""

    number: int


tools = Toolset(Booking, Cancel)
print(tools.names())
booking = InputTool.of(Booking, output=str, name="book_table")
call = booking.decode(ToolCall("book_table", {"restaurant": "Adler", "guests": 2}, id="c1"))
print(call.metadata.id, call.input)
call.input = Booking(restaurant="Adler", guests=3)
print(call.complete("Booked.").result.text)
try:
    InputTool.of(Cancel).complete(call, "Cancelled.")  # pyright: ignore[reportArgumentType]
except ToolsetError as fault:
    print(fault)
