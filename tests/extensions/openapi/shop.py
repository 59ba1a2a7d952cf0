"""A small API, and its document in OpenAPI 3.0: a Starlette application that says what it was asked."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PET = {
    "type": "object",
    "required": ["name", "id"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "minLength": 1},
        "tag": {"type": "string", "nullable": True},
        "parent": {"$ref": "#/components/schemas/Pet"},
    },
}


def document(**others: Any) -> dict[str, Any]:
    """The document, with other members."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "Shop", "version": "1", "description": "Sells pets."},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": {
            "/pets": {
                "get": {
                    "operationId": "listPets",
                    "summary": "List pets",
                    "parameters": [
                        {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}},
                        {
                            "name": "tags",
                            "in": "query",
                            "schema": {"type": "array", "items": {"type": "string"}},
                        },
                    ],
                    "responses": {"200": {"description": "ok", "content": {"application/json": {}}}},
                },
                "post": {
                    "operationId": "createPet",
                    "summary": "Create a pet",
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                    },
                    "responses": {"201": {"description": "made"}},
                },
            },
            "/pets/{petId}": {
                "parameters": [
                    {"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
                "delete": {"operationId": "pets/delete", "responses": {"204": {"description": "gone"}}},
            },
        },
        "components": {
            "schemas": {"Pet": PET},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        **others,
    }


async def echoed(request: Request) -> Response:
    """What was asked, as JSON."""
    body = await request.body()
    said = {
        "method": request.method,
        "path": request.scope["raw_path"].decode(),
        "query": request.url.query,
        "headers": dict(request.headers),
        "body": body.decode("utf-8", "replace"),
    }
    return JSONResponse(said)


async def described(request: Request) -> Response:
    """The document, with an ETag."""
    app = request.app
    app.state.reads.append(request.headers.get("if-none-match"))
    etag = f'"{app.state.document["info"]["version"]}"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304)
    return JSONResponse(app.state.document, headers={"etag": etag})


def shop(said: dict[str, Any] | None = None) -> Starlette:
    """The application."""
    every = ["GET", "POST", "PUT", "DELETE", "PATCH"]
    app = Starlette(routes=[Route("/openapi.json", described), Route("/{path:path}", echoed, methods=every)])
    app.state.document, app.state.reads = said or document(), []
    return app
