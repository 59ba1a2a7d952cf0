"""Documents: of all versions, in several files, hostile ones, and how they are read again."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.extensions.openapi.shop import document, shop
from tests.support.served import hosted

from mcp_toolset import OpenAPIToolset, PinPolicy, ToolsetServer
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.openapi.operations import api_of
from mcp_toolset.extensions.openapi.reading import DocumentError, Documents, checked

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi")]


@asynccontextmanager
async def served(source: Any, **options: Any) -> AsyncIterator[ToolsetServer]:
    with anyio.fail_after(60):
        async with ToolsetServer(OpenAPIToolset(source, name="api", **options), keep=False) as server:
            yield server


async def tools(source: Any, **options: Any) -> dict[str, Any]:
    async with served(source, **options) as server:
        status = server.statuses()["api"]
        assert status.state == "ready", status.reason
        return {one["name"]: one for one in server.tools()}


async def refused(source: Any, **options: Any) -> str:
    async with served(source, **options) as server:
        status = server.statuses()["api"]
        assert status.state == "offline"
        return status.reason


def of(paths: Any, **others: Any) -> dict[str, Any]:
    servers = [{"url": "http://api.example.com/v1"}]
    info = {"title": "T", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "servers": servers, "paths": paths, **others}


def body(schema: Any, **others: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return of(
        {"/a": {"post": {"operationId": "go", "requestBody": {"required": True, "content": content}}}},
        **others,
    )


SWAGGER = """
swagger: '2.0'
info: {title: Old, version: 1.0}
host: api.example.com
basePath: /v2
schemes: [http, https]
consumes: [application/json]
paths:
  /pets/{id}:
    parameters:
      - {name: id, in: path, required: true, type: integer, format: int64}
    post:
      operationId: change
      parameters:
        - {name: tags, in: query, type: array, items: {type: string}, collectionFormat: pipes}
        - {name: on, in: query, type: boolean}
        - {name: pet, in: body, required: true, schema: {$ref: '#/definitions/Pet'}}
      responses: {200: {description: ok}}
  /photos:
    post:
      operationId: upload
      consumes: [multipart/form-data]
      parameters:
        - {name: photo, in: formData, type: file, required: true}
        - {name: since, in: formData, type: string, default: 2020-01-01}
      responses: {default: {description: ok}}
definitions:
  Pet:
    type: object
    required: [name]
    properties:
      name: {type: string}
      age: {type: integer, minimum: 0, exclusiveMinimum: true}
"""


async def test_g1_swagger_2_is_read() -> None:
    found = await tools(SWAGGER)
    change, upload = found["change"]["inputSchema"], found["upload"]["inputSchema"]
    assert [*change["properties"]] == ["id", "tags", "on", "name", "age"]
    assert change["required"] == ["id", "name"]
    assert change["properties"]["age"] == {"type": "integer", "exclusiveMinimum": 0}
    assert upload["required"] == ["photo"] and "data: URI" in upload["properties"]["photo"]["description"]
    reaches = found["change"]["_meta"]["toolset/reaches"]
    assert (reaches["server"], reaches["base"]) == ("https://api.example.com", "/v2")


async def test_g1_swagger_2_is_called() -> None:
    said = SWAGGER.replace("host: api.example.com\n", "")
    async with served(said, transport=shop()) as server:
        told = json.loads((await server.call_tool("change", {"id": 5, "tags": ["a", "b"], "name": "x"})).text)
    assert (told["path"], told["query"], json.loads(told["body"])) == (
        "/v2/pets/5",
        "tags=a%7Cb",
        {"name": "x"},
    )


async def test_g1_references_lead_to_other_files_and_in_circles(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    tree = {"type": "object", "properties": {"next": {"$ref": "#/Tree"}, "leaf": {"$ref": "leaf.json"}}}
    (tmp_path / "api" / "schemas.yaml").write_text(json.dumps({"Tree": tree}))
    (tmp_path / "api" / "leaf.json").write_text('{"type": "integer", "description": "A leaf."}')
    item = {
        "post": {"operationId": "go", "requestBody": {"$ref": "../openapi.json#/components/requestBodies/B"}}
    }
    (tmp_path / "api" / "paths.json").write_text(json.dumps({"a~/b": item}))
    content = {"application/json": {"schema": {"$ref": "api/schemas.yaml#/Tree"}}}
    whole = of(
        {"/a": {"$ref": "api/paths.json#/a~0~1b"}}, components={"requestBodies": {"B": {"content": content}}}
    )
    (tmp_path / "openapi.json").write_text(json.dumps(whole))
    schema = (await tools(tmp_path / "openapi.json"))["go"]["inputSchema"]
    assert schema["properties"]["leaf"] == {"type": "integer", "description": "A leaf."}
    assert schema["properties"]["next"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["next"] == {"$ref": "#/$defs/Tree"}


async def test_g1_all_properties_of_a_schema_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    shared = {"name": {"$ref": "#/text"}, "id": {"type": "integer", "readOnly": True}}
    (tmp_path / "shared" / "a.json").write_text(json.dumps({"all": shared, "text": {"type": "string"}}))
    said = body({"type": "object", "properties": {"$ref": "shared/a.json#/all"}, "required": ["name"]})
    (tmp_path / "openapi.json").write_text(json.dumps(said))
    schema = (await tools(tmp_path / "openapi.json"))["go"]["inputSchema"]
    assert schema["properties"] == {"name": {"type": "string"}} and schema["required"] == ["name"]


async def test_g1_names_and_texts_are_for_models() -> None:
    long = "This sentence says at great length what the operation does, and then goes on and on. And more."
    found = await tools(
        of(
            {
                "/users/{user-id}/things": {
                    "get": {"description": long},
                    "delete": {"summary": "Delete all"},
                },
                "/a": {"get": {"operationId": "same"}, "post": {"operationId": "same"}},
                "/items/{item_id}": {"get": {"operationId": "read_item_items__item_id__get"}},
                "/b": {"get": {"operationId": "x" * 90, "deprecated": True}},
                "/c": {"get": {"operationId": "a.b/c d", "summary": "S <b>bold</b>"}},
            }
        )
    )
    names = [*found]
    assert names[:2] == ["get_users_by_user-id_things", "delete_users_by_user-id_things"]
    assert len({*names}) == 7 and all(len(one) <= 64 for one in names)
    assert "read_item" in names and "a_b_c_d" in names
    firsts = [one["description"].split("\n")[0] for one in found.values()]
    assert all(len(one) <= 80 for one in firsts), firsts
    assert firsts[1] == "Delete all." and found["a_b_c_d"]["description"] == "S bold."
    assert found["get_users_by_user-id_things"]["inputSchema"]["required"] == ["user-id"]


@pytest.mark.parametrize(
    ("schema", "fits", "misfits"),
    [
        ({"type": "string", "nullable": True}, [None, "a"], [{}]),
        ({"nullable": True, "allOf": [{"$ref": "#/components/schemas/S"}]}, [None, "a"], [1]),
        ({"type": "string", "enum": ["a"], "nullable": True}, [None, "a"], ["b"]),
        ({"type": "string", "pattern": "^(?=a)b"}, ["anything"], [{}]),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, [1, 1.5], ["a"]),
        ({"type": "integer", "maximum": 5, "exclusiveMaximum": True}, [4], [5]),
        ({"type": "int", "minLength": "3"}, ["a"], []),
        ({"$ref": "#/components/schemas/Nowhere"}, [1, "a"], []),
        ({"not": {"type": "string"}}, [1], ["a"]),
        (
            {
                "allOf": [
                    {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
                    {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
                ]
            },
            [{"a": 1, "b": 2}],
            [1],
        ),
    ],
)
async def test_g1_schemas_of_the_wild_are_checked(schema: Any, fits: list[Any], misfits: list[Any]) -> None:
    said = body(
        {"type": "object", "properties": {"v": schema}}, components={"schemas": {"S": {"type": "string"}}}
    )
    said |= {"openapi": "3.0.0", "servers": []}
    async with served(said, transport=shop()) as server:
        assert [(await server.call_tool("go", {"v": one})).is_error for one in fits] == [False] * len(fits)
        assert [(await server.call_tool("go", {"v": one})).is_error for one in misfits] == [True] * len(
            misfits
        )


async def test_g1_five_hundred_operations_are_behind_search() -> None:
    def many(count: int) -> Any:
        return of(
            {f"/thing{number}": {"get": {"summary": f"Read thing {number}"}} for number in range(count)}
        )

    few = await tools(many(499))
    assert len(few) == 499
    async with served(many(500)) as server:
        assert {one["name"] for one in server.tools()} >= {"search_tools", "call_tool"}
        assert len(server.tools()) == 4
        (hit, *_) = server.search("read thing 321")
        assert hit.name == "get_thing321"
    assert len(await tools(many(500), defer_from=0)) == 500


# Hostile documents


def nested(levels: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(levels):
        value = {"type": "object", "properties": {"a": value}}
    return value


ALIASES = (
    "openapi: 3.0.0\ninfo: {title: t, version: 1}\npaths: {}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"openapi": "3.0.0", "paths": {"/a": {"$ref": "file:///etc/passwd"}}}, "leads to file address"),
        (
            {"openapi": "3.0.0", "paths": {"/a": {"$ref": "http://169.254.169.254/latest"}}},
            "leads to another host",
        ),
        ({"openapi": "3.0.0", "paths": {"/a": {"$ref": "other.json"}}}, "which is not read"),
        (ALIASES, "by aliases"),
        ("openapi: 3.0.0\npaths: &p\n  /a: *p\n", "leads back to itself"),
        ("{" + '"a":{' * 5000, "nested"),
        ("openapi: 3.0.0\npaths: " + "[" * 5000, "nested"),
        ("openapi: [3\na: 1", "neither JSON nor YAML"),
        ("a: !!python/object/apply:os.system [id]\nb: 1", "neither JSON nor YAML"),
        (json.dumps(body(nested(150))), "nested"),
        ({"hello": 1}, "neither `openapi"),
        ({"openapi": "4.0", "paths": {}}, "neither `openapi"),
        (of({}, servers=[{"url": "ftp://x"}]) | {"paths": {"/a": {"get": {}}}}, ""),
    ],
)
async def test_g1_a_hostile_document_is_refused_with_a_reason(source: Any, told: str) -> None:
    if told:
        assert told in await refused(source)
    else:
        assert not await tools(source)


async def test_g1_a_document_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.openapi.reading.MAX_BYTES", 2000)
    (tmp_path / "a.json").write_text(json.dumps(of({f"/{n}": {"get": {}} for n in range(500)})))
    assert "MiB" in await refused(tmp_path / "a.json")
    assert "MiB" in await refused(json.dumps(of({f"/{n}": {"get": {}} for n in range(500)})))
    async with hosted(shop(of({f"/{n}": {"get": {}} for n in range(500)}))) as url:
        assert "MiB" in await refused(f"{url}/openapi.json")


def bomb() -> Any:
    """Thirty schemas, each twice the next one: a billion, if they were written out."""
    names = [f"S{number}" for number in range(30)]
    schemas: dict[str, Any] = {
        one: {
            "allOf": [{"$ref": f"#/components/schemas/{two}"}] * 2,
            "properties": {"a": {"$ref": f"#/components/schemas/{two}"}},
        }
        for one, two in zip(names, names[1:], strict=False)
    }
    return body(
        {"$ref": "#/components/schemas/S0"}, components={"schemas": {**schemas, "S29": {"type": "object"}}}
    )


def wide() -> Any:
    properties = {f"p{n}": {"$ref": f"#/components/schemas/S{n}"} for n in range(300)}
    schemas = {
        f"S{n}": {"type": "object", "description": "d" * 300, "properties": properties} for n in range(300)
    }
    return body(
        {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/S0"}}},
        components={"schemas": schemas},
    )


def chain() -> Any:
    schemas = {
        f"S{n}": {"type": "object", "properties": {"a": {"$ref": f"#/components/schemas/S{n + 1}"}}}
        for n in range(3000)
    }
    return body({"$ref": "#/components/schemas/S0"}, components={"schemas": schemas})


@pytest.mark.parametrize("made", [bomb, wide, chain])
async def test_g1_a_bomb_of_references_costs_little(made: Any) -> None:
    found = await tools(made())
    assert len(json.dumps(found)) < 60_000


@pytest.mark.parametrize("reference", ["#/components/schemas/A", "#/components/schemas/B"])
async def test_g1_a_schema_that_is_itself_is_left_out_alone(reference: str) -> None:
    schemas = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}
    said = body({"type": "object", "properties": {"x": {"$ref": reference}}}, components={"schemas": schemas})
    said["paths"]["/b"] = {"get": {"operationId": "fine"}}
    assert "fine" in await tools(said)


async def test_g1_references_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "secret.json").write_text('{"get": {"operationId": "secret"}}')
    (tmp_path / "api" / "link.json").symlink_to(tmp_path / "secret.json")
    for reference in ("../secret.json", "link.json", (tmp_path / "secret.json").as_uri()):
        (tmp_path / "api" / "o.json").write_text(json.dumps(of({"/a": {"$ref": reference}})))
        assert "leaves the folder" in await refused(tmp_path / "api" / "o.json")


# Where requests go


async def test_g1_no_request_leaves_for_a_private_address_without_a_word() -> None:
    async with hosted(shop()) as url:
        said = document(servers=[{"url": url}])
        async with served(said) as server:
            result = await server.call_tool("listPets", {})
        assert result.is_error and "a loopback address" in result.text and "`egress`" in result.text
        for word in ({"server": url}, {"egress": ["127.0.0.0/8"]}):
            async with served(said, **word) as server:
                assert not (await server.call_tool("listPets", {})).is_error
        assert "a loopback address" not in await refused(f"{url}/missing.json")


async def test_g1_an_api_that_is_down_is_told_with_its_address() -> None:
    async with served(document(), server="http://127.0.0.1:9") as server:
        result = await server.call_tool("listPets", {})
    assert result.is_error and "http://127.0.0.1:9" in result.text and "was not reached" in result.text


@pytest.mark.parametrize("source", ["ftp://x.example.com/a.json", "file:///etc/passwd"])
def test_g1_a_document_at_no_web_address_is_refused(source: str) -> None:
    with pytest.raises(DefinitionError, match="http or https"):
        OpenAPIToolset(source)


# Read again


async def test_g1_a_document_that_changes_is_a_changed_definition() -> None:
    app = shop()
    async with hosted(app) as url:
        mount = OpenAPIToolset(f"{url}/openapi.json", name="api", refresh=0.05, pins=PinPolicy("quarantine"))
        with anyio.fail_after(60):
            async with ToolsetServer(mount, keep=False) as server:
                assert "listPets" in {one["name"] for one in server.tools()}
                changed = document(servers=[{"url": "/v2"}])
                changed["info"]["version"] = "2"
                app.state.document = changed
                while not server.statuses()["api"].changes:
                    await anyio.lowlevel.checkpoint()
                held = {one.name for one in server.statuses()["api"].changes if one.held}
    assert "listPets" in held, "its requests would go to another address"


async def test_g1_a_document_that_names_other_hosts_later_is_kept_as_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = shop()
    async with hosted(app) as url, served(f"{url}/openapi.json", refresh=0.05) as server:
        app.state.document = document(
            servers=[{"url": "https://evil.example.com"}], info={"title": "x", "version": "2"}
        )
        with anyio.fail_after(60):
            while "names other hosts" not in caplog.text:
                await anyio.lowlevel.checkpoint()
        assert not (await server.call_tool("listPets", {})).is_error


async def test_g1_a_document_is_read_again_only_if_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path))
    app = shop()
    async with hosted(app) as url:
        for _ in range(2):
            assert "listPets" in await tools(f"{url}/openapi.json")
    assert app.state.reads == [None, '"1"']
    (kept,) = (tmp_path / "openapi").iterdir()
    assert kept.stat().st_mode & 0o077 == 0


JUNK: list[Any] = [
    None,
    True,
    5,
    "x",
    [],
    {},
    ["a"],
    {"a": 1},
    {"$ref": 5},
    {"$ref": "#/x"},
    [None],
    "\ud800",
]


def spoiled(number: int) -> Any:
    """A document in which one value is another thing than it should be."""
    said: Any = json.loads(json.dumps(document()))
    places: list[tuple[Any, Any]] = []
    due: list[Any] = [said]
    while due:
        one = due.pop()
        inside: Any = one.items() if isinstance(one, dict) else enumerate(one)
        for key, value in inside:
            places.append((one, key))
            due += [value] if isinstance(value, dict | list) else []
    holder, key = places[number % len(places)]
    holder[key] = JUNK[number % len(JUNK)]
    return said


def test_g1_a_mistake_in_a_document_costs_no_more_than_what_it_is_in() -> None:
    for number in range(400):
        try:
            made = api_of(Documents("", {"": checked(spoiled(number), "it")}), origin="http://app")
        except DocumentError:
            continue
        assert all(one.definition["inputSchema"]["type"] == "object" for one in made.operations.values())


# What is no address


@pytest.mark.parametrize(
    "host", ["0177.0.0.1", "１２７.0.0.1", "[::1", "a..example.com", "ex ample.com", "a%00b.com", "x:y"]
)
async def test_g1_an_operation_at_an_address_that_is_none_is_left_out(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = of({"/a": {"get": {"operationId": "bad", "servers": [{"url": f"http://{host}/v1"}]}}})
    said["paths"]["/b"] = {"get": {"operationId": "good"}}
    assert [*await tools(said)] == ["good"]
    assert "operation bad is left out" in caplog.text and "Traceback" not in caplog.text


async def test_g1_a_document_at_an_address_that_is_none_is_told() -> None:
    assert "no address" in await refused("http://0177.0.0.1/openapi.json")


@pytest.mark.parametrize("server", ["http://0177.0.0.1", "http://[::1", "http://a..b/", "http://a/#b"])
async def test_g1_a_server_that_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(DefinitionError, match="no http or https address"):
        OpenAPIToolset(of({}), server=server)


async def test_g1_arguments_that_make_no_address_are_told() -> None:
    said = of({"/a": {"get": {"operationId": "go"}}})
    said["paths"]["/a"]["get"]["parameters"] = [{"name": "q", "in": "query", "schema": {"type": "string"}}]
    async with served(said, transport=shop()) as server:
        result = await server.call_tool("go", {"q": "x" * 100_000})
    assert result.is_error and "too long" in result.text


@pytest.mark.parametrize("reference", ["a%00b", "a\0b", "http://[::1/a.json"])
@pytest.mark.parametrize("place", ["file", "text"])
async def test_g1_a_reference_that_is_no_address_is_told(tmp_path: Path, reference: str, place: str) -> None:
    said = of({"/a": {"get": {"operationId": "go", "parameters": [{"$ref": reference}]}}})
    source = tmp_path / "api.json"
    source.write_text(json.dumps(said))
    told = await refused(source if place == "file" else said)
    assert "is no address and no path" in told and "Error" not in told


async def test_g1_a_path_with_a_null_is_no_path_of_a_document() -> None:
    with pytest.raises(DefinitionError, match="is no path"):
        OpenAPIToolset("a\0b.json")


@pytest.mark.parametrize(
    ("scheme", "secret", "mend"),
    [
        ({"type": "http", "scheme": "basic"}, "nocolon-1", "`user:password`"),
        ({"type": "http", "scheme": "basic"}, "", "is empty"),
        ({"type": "http", "scheme": "bearer"}, "", "is empty"),
        ({"type": "http", "scheme": "bearer"}, "Bearer ", "is empty"),
        ({"type": "oauth2", "flows": {}}, "two words-1", "the token alone"),
        ({"type": "http", "scheme": "bearer"}, "“token-1”", "none of a header"),
        ({"type": "apiKey", "in": "header", "name": "X-Key"}, " ", "is empty"),
    ],
)
async def test_g1_a_secret_that_cannot_be_one_is_refused_at_the_start(
    scheme: Any, secret: str, mend: str
) -> None:
    told = await refused(of({}, components={"securitySchemes": {"s": scheme}}), credentials={"s": secret})
    assert mend in told and "'s'" in told
    assert not secret.strip() or secret.split()[-1] not in told


@pytest.mark.parametrize("level", ["[", "{a: ", "- ", "? ", "[{a: "])
async def test_g1_a_deep_document_of_yaml_costs_no_more_the_longer_it_is(level: str) -> None:
    async def cost(levels: int) -> float:
        before = time.process_time()
        assert "nested more than 200 levels" in await refused("x:\n  " + level * levels + "\n")
        return time.process_time() - before

    await cost(300)
    few, many = await cost(300), await cost(20_000)
    assert many < 5 * few + 1, f"as a text of {20_000 * len(level)} characters it costs {many:.1f} s"


async def test_g1_a_document_of_yaml_may_have_many_levels() -> None:
    said = "openapi: 3.0.0\npaths: {}\nx-a: " + "[" * 190 + "]" * 190 + "\n"
    assert await tools(said) == {}


def is_read() -> bool:
    """True while a thread reads YAML."""
    return any(
        "ruamel" in step.f_code.co_filename
        for frame in sys._current_frames().values()
        for step, _ in traceback.walk_stack(frame)
    )


async def test_g1_a_document_that_takes_too_long_is_given_up() -> None:
    said = "openapi: 3.0.0\nx-a: [" + ("[" * 150 + "]" * 150 + ",") * 3000 + "]\n"
    assert "within 0.5 s" in await refused(said, start_timeout=0.5)
    with anyio.fail_after(10):
        while is_read():  # noqa: ASYNC110
            await anyio.sleep(0.05)
