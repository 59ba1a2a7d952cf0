"""An application of Starlette, served as tools in the same process by its OpenAPI document."""

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcp_toolset import OpenAPIToolset, ToolsetServer, serve

STOCK = {"tea": 12, "coffee": 3}


async def stock(request: Request) -> JSONResponse:
    item = request.path_params["item"]
    return JSONResponse({"item": item, "left": STOCK.get(item, 0)})


app = Starlette(routes=[Route("/stock/{item}", stock)])

# FastAPI writes it: app.openapi().
document: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Stock", "version": "1"},
    "paths": {
        "/stock/{item}": {
            "get": {
                "operationId": "stock_of",
                "summary": "Say how many of an item are left",
                "parameters": [
                    {"name": "item", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
                "responses": {"200": {"description": "The number of them."}},
            }
        }
    },
}

server = ToolsetServer(OpenAPIToolset(document, transport=app))

if __name__ == "__main__":
    serve(server)
