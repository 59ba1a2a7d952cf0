"""Where the arguments of a call go: styles of parameters, bodies, files; and what comes back."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from tests.extensions.openapi.shop import shop
from tests.support.asking import text_of

from mcp_toolset import OpenAPIToolset, ToolResult, ToolsetServer
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.testing import Client

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi")]

COLORS = ["blue", "b lack"]
RGB = {"R": 100, "G": 200}


def api(
    operation: dict[str, Any], path: str = "/things", method: str = "post", **others: Any
) -> dict[str, Any]:
    """A document of one operation."""
    said = {"operationId": "go", "responses": {"200": {"description": "ok"}}, **operation}
    return {
        "openapi": "3.0.3",
        "info": {"title": "One", "version": "1"},
        "paths": {path: {method: said}},
        **others,
    }


async def called(
    said: dict[str, Any], arguments: dict[str, Any], app: Any = None, **options: Any
) -> ToolResult:
    tools = OpenAPIToolset(said, transport=app or shop(), **options)
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False) as server:
            return await server.call_tool("go", arguments)


async def sent(said: dict[str, Any], arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
    result = await called(said, arguments, **options)
    assert not result.is_error, result.text
    return json.loads(result.text)


@pytest.mark.parametrize(
    ("style", "explode", "value", "query"),
    [
        ("form", True, COLORS, "color=blue&color=b%20lack"),
        ("form", False, COLORS, "color=blue,b%20lack"),
        ("form", True, RGB, "R=100&G=200"),
        ("form", False, RGB, "color=R,100,G,200"),
        ("spaceDelimited", False, COLORS, "color=blue%20b%20lack"),
        ("pipeDelimited", False, COLORS, "color=blue%7Cb%20lack"),
        ("deepObject", True, RGB, "color[R]=100&color[G]=200"),
        ("deepObject", True, {"a": {"b": [1, 2]}}, "color[a][b][0]=1&color[a][b][1]=2"),
        ("form", True, "", "color="),
        ("form", True, True, "color=true"),
        ("form", True, 3.0, "color=3"),
        ("form", True, "a&b=c#d", "color=a%26b%3Dc%23d"),
    ],
)
async def test_g1_a_query_is_written_in_the_style_of_its_parameter(
    style: str, explode: bool, value: Any, query: str
) -> None:
    parameter = {"name": "color", "in": "query", "style": style, "explode": explode, "schema": {}}
    assert (await sent(api({"parameters": [parameter]}), {"color": value}))["query"] == query


@pytest.mark.parametrize(
    ("style", "explode", "value", "path"),
    [
        ("simple", False, COLORS, "blue,b%20lack"),
        ("simple", True, RGB, "R=100,G=200"),
        ("simple", False, RGB, "R,100,G,200"),
        ("label", False, COLORS, ".blue,b%20lack"),
        ("label", True, COLORS, ".blue.b%20lack"),
        ("label", True, RGB, ".R=100.G=200"),
        ("matrix", False, COLORS, ";color=blue,b%20lack"),
        ("matrix", True, COLORS, ";color=blue;color=b%20lack"),
        ("matrix", True, RGB, ";R=100;G=200"),
        ("simple", False, "a/b?c#d%2e", "a%2Fb%3Fc%23d%252e"),
    ],
)
async def test_g1_a_path_is_written_in_the_style_of_its_parameter(
    style: str, explode: bool, value: Any, path: str
) -> None:
    parameter = {
        "name": "color",
        "in": "path",
        "required": True,
        "style": style,
        "explode": explode,
        "schema": {},
    }
    said = api({"parameters": [parameter]}, "/things/{color}/end")
    assert (await sent(said, {"color": value}))["path"] == f"/things/{path}/end"


async def test_g1_headers_and_cookies_are_written() -> None:
    parameters = [
        {"name": "X-Ids", "in": "header", "schema": {"type": "array", "items": {"type": "integer"}}},
        {"name": "X-Filter", "in": "header", "content": {"application/json": {"schema": {"type": "object"}}}},
        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
    ]
    arguments = {"X-Ids": [1, 2], "X-Filter": {"a": 1}, "session": "a;b=c"}
    headers = (await sent(api({"parameters": parameters}), arguments))["headers"]
    assert (headers["x-ids"], headers["x-filter"]) == ("1,2", '{"a":1}')
    assert headers["cookie"] == "session=a%3Bb%3Dc"
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("header", "a\r\nX-Admin: 1", "line breaks"),
        ("header", "caf\u00e9", "ASCII"),
        ("path", "..", "leads to another path"),
        ("path", "a/../../b", "leads to another path"),
        ("path", "..\\b", "leads to another path"),
        ("path", ".", "leads to another path"),
        ("path", "", "it is empty"),
        ("path", "a\nb", "control character"),
    ],
)
async def test_g1_an_argument_that_would_change_the_request_is_refused(
    place: str, value: str, told: str
) -> None:
    parameter = {"name": "X", "in": place, "required": True, "schema": {"type": "string"}}
    result = await called(
        api({"parameters": [parameter]}, "/a/{X}" if place == "path" else "/a"), {"X": value}
    )
    assert result.is_error and told in result.text


def body(media: str, schema: Any, **others: Any) -> dict[str, Any]:
    return api({"requestBody": {"required": True, "content": {media: {"schema": schema, **others}}}})


THING = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "meta": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
VALUES = {"name": "a b&c", "tags": ["x", "y"], "meta": {"k": "v"}}


async def test_g1_a_form_is_written_as_its_encoding_says() -> None:
    deep = {"meta": {"style": "deepObject", "explode": True}, "tags": {"style": "form", "explode": False}}
    said = await sent(body("application/x-www-form-urlencoded", THING, encoding=deep), VALUES)
    assert said["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert said["body"] == "name=a+b%26c&tags=x,y&meta[k]=v"
    plain = await sent(body("application/x-www-form-urlencoded", THING), VALUES)
    assert plain["body"] == "name=a+b%26c&tags=x&tags=y&meta[k]=v"


async def test_g1_a_multipart_body_has_files_by_reference(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "files" / "link").symlink_to(tmp_path / "secret.txt")
    properties = {**THING["properties"], "photo": {"type": "string", "format": "binary"}}
    said = body("multipart/form-data", {"type": "object", "properties": properties})
    got = (await sent(said, {"name": "x", "photo": "a.png"}, files=tmp_path / "files"))["body"]
    assert 'name="photo"; filename="a.png"\r\ncontent-type: image/png\r\n\r\n' in got
    assert 'name="name"\r\n\r\nx\r\n' in got
    data = "data:text/csv;base64," + base64.b64encode(b"a,b").decode()
    assert "content-type: text/csv\r\n\r\na,b\r\n" in (await sent(said, {"photo": data}))["body"]
    for path in ("../secret.txt", "link", str(tmp_path / "secret.txt")):
        result = await called(said, {"photo": path}, files=tmp_path / "files")
        assert result.is_error and "not below the folder of files" in result.text
    assert "data: URI" in (await called(said, {"photo": "a.png"})).text


async def test_g1_a_body_that_is_a_file_or_a_text_is_one_argument(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"12")
    raw = api({"requestBody": {"required": True, "content": {"application/octet-stream": {}}}})
    assert (await sent(raw, {"body": "a.bin"}, files=tmp_path))["body"] == "12"
    text = api({"requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}}})
    assert (await sent(text, {"body": "hi"}))["body"] == "hi"
    assert "content-type" not in (await sent(text, {}))["headers"]


async def test_g1_a_body_that_is_no_plain_object_is_one_argument() -> None:
    choice = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"meows": "#/components/schemas/Cat"}},
    }
    animals = {
        name: {"type": "object", "properties": {"kind": {"type": "string"}}} for name in ("Cat", "Dog")
    }
    said = body("application/json", choice) | {"components": {"schemas": animals}}
    assert json.loads((await sent(said, {"body": {"kind": "Dog"}}))["body"]) == {"kind": "Dog"}
    assert (await called(said, {"body": {"kind": "Cat"}})).is_error, "the mapping has another value for it"
    assert not (await called(said, {"body": {"kind": "meows"}})).is_error


async def test_g1_parts_of_all_of_are_arguments_together() -> None:
    parts = [
        THING,
        {
            "type": "object",
            "required": ["id", "size"],
            "properties": {"id": {"type": "integer", "readOnly": True}, "size": {"type": "integer"}},
        },
    ]
    said = body("application/json", {"allOf": parts})
    assert json.loads((await sent(said, {"name": "x", "size": 2}))["body"]) == {"name": "x", "size": 2}
    assert (await called(said, {"name": "x"})).is_error
    assert (await called(said, {"name": "x", "size": 2, "id": 1})).is_error


# Answers


def answering(answer: Any) -> Starlette:
    async def answered(request: Request) -> Response:
        return answer if isinstance(answer, Response) else answer(request)

    return Starlette(routes=[Route("/{path:path}", answered, methods=["GET", "POST"])])


async def test_g1_answers_are_results() -> None:
    get = api({}, method="get")
    told = await called(get, {}, answering(JSONResponse({"a": [1]})))
    assert told.structured == {"a": [1]} and json.loads(told.text) == {"a": [1]}
    image = await called(get, {}, answering(Response(b"\x89PNG", media_type="image/png")))
    assert image.content[0]["mimeType"] == "image/png"
    file = await called(get, {}, answering(Response(b"\xff\xfe\x00", media_type="application/zip")))
    assert file.content[0]["resource"]["mimeType"] == "application/zip"
    assert "HTTP 204" in (await called(get, {}, answering(Response(status_code=204)))).text
    fault = await called(get, {}, answering(JSONResponse({"error": "no such thing"}, status_code=404)))
    assert fault.is_error and fault.text.startswith("HTTP 404") and "no such thing" in fault.text


async def test_g1_an_answer_without_credentials_names_the_schemes() -> None:
    scheme = {
        "components": {"securitySchemes": {"api_key": {"type": "apiKey", "in": "header", "name": "X-Key"}}}
    }
    said = api({"security": [{"api_key": []}]}) | scheme
    told = await called(said, {}, answering(Response("no", status_code=401)))
    assert told.is_error and "api_key" in told.text and "`credentials`" in told.text
    assert (await sent(said, {}, credentials={"api_key": "k"}))["headers"]["x-key"] == "k"


@pytest.mark.parametrize(
    ("scheme", "secret", "where"),
    [
        ({"type": "apiKey", "in": "query", "name": "key"}, "a&b", ("query", "key=a%26b")),
        ({"type": "apiKey", "in": "cookie", "name": "sid"}, "s", ("cookie", "sid=s")),
        ({"type": "http", "scheme": "basic"}, "me:pw", ("authorization", "Basic bWU6cHc=")),
        ({"type": "http", "scheme": "Bearer"}, "t", ("authorization", "Bearer t")),
        ({"type": "oauth2", "flows": {}}, "t", ("authorization", "Bearer t")),
        (
            {"type": "openIdConnect", "openIdConnectUrl": "https://x"},
            "Bearer t",
            ("authorization", "Bearer t"),
        ),
    ],
)
async def test_g1_each_scheme_has_its_credentials(scheme: Any, secret: str, where: tuple[str, str]) -> None:
    said = api(
        {"security": [{"other": [], "s": []}, {"s": []}]}, components={"securitySchemes": {"s": scheme}}
    )
    got = await sent(said, {}, credentials={"s": secret})
    place, value = where
    assert (got["query"] if place == "query" else got["headers"][place]) == value


async def test_g1_an_operation_without_security_gets_no_credentials() -> None:
    scheme = {
        "components": {"securitySchemes": {"s": {"type": "http", "scheme": "bearer"}}},
        "security": [{"s": []}],
    }
    assert (
        "authorization"
        not in (await sent(api({"security": []}, **scheme), {}, credentials={"s": "t"}))["headers"]
    )
    assert (await sent(api({}, **scheme), {}, credentials={"s": "t"}))["headers"][
        "authorization"
    ] == "Bearer t"


async def test_g1_a_document_that_forgets_security_gets_a_credential_if_there_is_but_one() -> None:
    schemes = {
        "s": {"type": "http", "scheme": "bearer"},
        "k": {"type": "apiKey", "in": "header", "name": "X-Key"},
    }
    said = api({}, components={"securitySchemes": schemes})
    alone = (await sent(said, {}, credentials={"s": "t"}))["headers"]
    assert alone["authorization"] == "Bearer t"
    both = (await sent(said, {}, credentials={"s": "t", "k": "k"}))["headers"]
    assert "authorization" not in both and "x-key" not in both
    refusing = answering(Response("no", status_code=401))
    told = (await called(said, {}, refusing, credentials={"s": "t", "k": "k"})).text
    assert "give one secret in `credentials`, or use `headers`" in told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (JSONResponse({}, headers={"link": '</things?page=3&limit=5>; rel="next"'}), '{"page": 3}'),
        (JSONResponse({"next": "http://app/things?page=3&limit=5"}), '{"page": 3}'),
        (JSONResponse({"response_metadata": {"next_cursor": "abc="}}), '{"cursor": "abc="}'),
        (JSONResponse({"nextPageToken": "t"}), '{"pageToken": "t"}'),
        (JSONResponse({"_links": {"next": {"href": "/things?page=3"}}}), '{"page": 3}'),
        (JSONResponse({"next_cursor": ""}), ""),
        (JSONResponse({"next": "http://app/others?x=1"}), ""),
    ],
)
async def test_g1_the_next_page_is_told(answer: Response, told: str) -> None:
    kinds = {"page": "integer", "limit": "integer", "cursor": "string", "pageToken": "string"}
    parameters = [{"name": name, "in": "query", "schema": {"type": kind}} for name, kind in kinds.items()]
    said = api({"parameters": parameters}, method="get")
    result = await called(said, {"page": 2, "limit": 5}, answering(answer))
    hints = [one["text"] for one in result.content[1:]]
    assert hints == ([f"More results: call again with the same arguments and {told}"] if told else [])


@pytest.mark.parametrize("status", [301, 302, 307])
async def test_g1_a_redirect_stays_at_its_origin(status: int) -> None:
    def moved(to: str) -> Any:
        def answer(request: Request) -> Response:
            return (
                JSONResponse({"at": request.url.path})
                if request.url.path == "/new"
                else RedirectResponse(to, status)
            )

        return answering(answer)

    get = api({}, method="get")
    assert (await called(get, {}, moved("/new"))).structured == {"at": "/new"}
    for elsewhere in ("http://evil.example.com/new", "http://app:81/new", "//evil.example.com/new"):
        result = await called(get, {}, moved(elsewhere))
        assert result.is_error and "another host" in result.text
    if status == 302:
        assert "not followed" in (await called(api({}), {}, moved("/new"))).text


async def test_g1_an_answer_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.openapi.calling.MAX_ANSWER", 1000)
    result = await called(api({}, method="get"), {}, answering(Response("x" * 2000)))
    assert result.is_error and "ask for less" in result.text


async def test_g1_cookies_of_one_answer_are_not_sent_with_the_next_request() -> None:
    def answer(request: Request) -> Response:
        found = JSONResponse({"cookies": dict(request.cookies)})
        found.set_cookie("session", "of-another-caller")
        return found

    tools = OpenAPIToolset(api({}, method="get"), transport=answering(answer))
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False) as server:
            told = [(await server.call_tool("go", {})).structured for _ in range(2)]
    assert told == [{"cookies": {}}] * 2


async def test_g1_a_document_cannot_change_how_requests_are_sent() -> None:
    names = ["Host", "Content-Length", "Transfer-Encoding", "Cookie", "X-Fine"]
    parameters = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]
    content = {"application/json\r\nX-Injected: 1": {}, "text/plain": {}}
    said = api({"parameters": parameters, "requestBody": {"required": True, "content": content}})
    schemes = {
        "s": {"type": "apiKey", "in": "header", "name": "X\r\nY"},
        "h": {"type": "apiKey", "in": "header", "name": "Host"},
    }
    said |= {"components": {"securitySchemes": schemes}}
    got = await sent(said, {"body": "hi", "X-Fine": "yes"})
    assert got["headers"]["host"] == "app" and got["headers"]["x-fine"] == "yes"
    assert got["headers"]["content-type"] == "text/plain"
    assert (await called(said, {"body": "hi", "Host": "evil"})).is_error
    for name in schemes:
        with pytest.raises(UnknownToolError, match="cannot be met with a secret"):
            await called(said, {"body": "hi"}, credentials={name: "secret-1"})


@pytest.mark.needs("large_results")
async def test_g1_a_long_answer_is_kept_for_the_model() -> None:
    tools = OpenAPIToolset(api({}, method="get"), transport=answering(JSONResponse(["pet"] * 20_000)))
    with anyio.fail_after(60):
        async with ToolsetServer(tools, large_results=1_000, keep=False) as server, Client(server) as client:
            told = text_of(await client.call_tool("go", {}))
    assert len(told) < 5_000 and "result" in told


def moving(status: int, location: str | None, seen: list[str]) -> Starlette:
    async def answered(request: Request) -> Response:
        seen.append(request.method)
        headers = {} if location is None else {"location": location}
        return Response("paid", status, headers, "text/plain")

    return Starlette(routes=[Route("/{path:path}", answered, methods=["GET", "POST", "DELETE"])])


@pytest.mark.parametrize("status", [300, 301, 303, 304, 307, 308, 399])
@pytest.mark.parametrize("location", [None, "", "/things"])
@pytest.mark.parametrize("method", ["get", "post"])
async def test_g1_a_call_is_one_request_unless_it_is_sent_elsewhere(
    status: int, location: str | None, method: str
) -> None:
    seen = list[str]()
    result = await called(api({}, method=method), {}, moving(status, location, seen))
    assert result.is_error and seen == [method.upper()]
    is_followed = method == "get" and status in (301, 302, 303)
    if location and (is_followed or status in (307, 308)):
        assert "redirects back to itself" in result.text
    else:
        assert result.text.startswith(f"HTTP {status}")
        assert status == 304 or "paid" in result.text


async def test_g1_a_redirect_to_another_kind_of_address_is_told() -> None:
    result = await called(api({}, method="get"), {}, moving(302, "file:///etc/passwd", []))
    assert result.is_error and "`file:`" in result.text


async def test_g1_a_json_answer_may_have_a_byte_order_mark() -> None:
    answer = Response(b'\xef\xbb\xbf{"a": 1}', media_type="application/json")
    result = await called(api({}, method="get"), {}, answering(answer))
    assert result.structured == {"a": 1} and result.text == '{"a": 1}'


async def test_g1_an_answer_in_an_unknown_encoding_is_told() -> None:
    asked = list[str]()

    def answer(request: Request) -> Response:
        asked.append(request.headers["accept-encoding"])
        return Response(b"\x8b\x02\x80\x7b\x7d\x03", headers={"content-encoding": "gzip, x-odd"})

    named = [{"name": "Accept-Encoding", "in": "header", "schema": {"type": "string"}}]
    said = api({"parameters": named}, method="get")
    result = await called(said, {}, answering(answer))
    assert result.is_error and "`x-odd`" in result.text
    assert (await called(said, {"Accept-Encoding": "x-odd"}, answering(answer))).is_error
    assert len(asked) == 1 and "x-odd" not in asked[0]
