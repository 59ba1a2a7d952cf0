"""The server behind every door on the web: `uvicorn tests.interaction.doors_app:app`, or hypercorn."""

from tests.interaction.doors_server import make

app = make().http_app()
