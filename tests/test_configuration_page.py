"""The schema of the configuration file and the page of its keys are those of the models that read it."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.support.config import config_of
from tests.support.rows import rows

from mcp_toolset.config.entries import known_keys
from mcp_toolset.config.schema import FILE, parts
from mcp_toolset.config.tables import ServerEntry, ToolsetSection
from mcp_toolset.extensions.code.extension import CodeLimits

pytestmark = pytest.mark.needs("*")

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "reference"))
SCHEMA = json.loads(FILE.read_text())
PARTS = parts()
ENVIRONMENT = {
    "TOKEN": "t0ken",
    "AUDIT_KEY": "a key of 16 letters",
    "CI_TOKEN": "c1",
    "CLIENT_SECRET": "s3cret",
}


def fits(file: Any) -> bool:
    return jsonschema_rs.validator_for(SCHEMA).is_valid(file)


def file_with(section: str, key: str, value: Any) -> dict[str, Any]:
    """A file with one key of a server, or of the section `toolset`."""
    entry: dict[str, Any] = {"url": "https://host/mcp"} if key in _OF_URLS else {"command": "echo"}
    if key in ("command", "url", "httpUrl", "serverUrl", "openapi"):
        entry = {}
    if section == "server":
        return {"mcpServers": {"one": {**entry, key: value}}}
    return {"mcpServers": {"one": entry}, "toolset": {key: value}}


_OF_URLS = {"headers", "auth", "oauth", "type", "transport"}


def examples() -> Iterator[tuple[str, str, Any]]:
    for section, table in (("server", PARTS["server"].meanings), ("toolset", PARTS["toolset"].meanings)):
        for key, meaning in table.items():
            yield section, key, meaning.example


def test_u16_the_page_of_keys_is_that_of_the_models() -> None:
    assert (ROOT / "docs" / "configuration-reference.md").read_text() == SCRIPT["page"](), (
        "run scripts/reference"
    )


def test_e2_the_published_schema_is_that_of_the_models() -> None:
    assert FILE.read_text() == SCRIPT["schema_text"](), "run scripts/reference"
    jsonschema_rs.meta.validate(SCHEMA)


@rows("section, model", [("server", ServerEntry), ("toolset", ToolsetSection)])
def test_u16_every_key_has_a_meaning(section: str, model: Any) -> None:
    assert sorted(PARTS[section].meanings) == sorted(known_keys(model))


@pytest.mark.needs("code")
def test_u16_the_limits_of_code_are_told_with_their_defaults() -> None:

    for field in fields(CodeLimits):
        assert PARTS["code"].schema["properties"][field.name]["default"] == field.default


@rows("name", PARTS)
def test_u16_every_example_fits_its_type(name: str) -> None:
    for key, schema in PARTS[name].schema["properties"].items():
        whole = {**schema, "$defs": SCHEMA["$defs"]}
        assert jsonschema_rs.is_valid(whole, schema["examples"][0]), key


@rows("section, key, value", examples(), lambda section, key, value: f"{section} {key}")
def test_e2_every_example_is_read_without_a_complaint(
    section: str, key: str, value: Any, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("A=1")
    (tmp_path / "skills").mkdir(exist_ok=True)
    file = file_with(section, key, value)
    if (section, key) in (("server", "journal"), ("server", "idempotency")):
        file["toolset"] = {"journal": True}
    assert fits(file)
    config = config_of(file, source=tmp_path / "mcp.json", environ=ENVIRONMENT)
    assert [server.fault for server in config.servers] == [""]
    assert config.warnings == ()


# The key of `examples/extension` is known where it is installed: see tests/extensions/test_stranger.py.
OUR_FILES = sorted({*ROOT.glob("examples/**/*.json")} - {*ROOT.glob("examples/extension/*.json")})


@rows("path", OUR_FILES)
def test_e2_our_example_files_fit_the_schema(path: Path) -> None:
    assert fits(json.loads(path.read_text()))


@rows(
    "file",
    [
        {"mcpServers": {"one": {"command": "echo", "pins": "yes"}}},
        {"mcpServers": {"one": {"command": "echo", "timeout": 0}}},
        {"mcpServers": {"one": {"url": "https://host/mcp", "auth": {"type": "oauth", "clientID": "x"}}}},
        {"mcpServers": {"one": {"command": "echo", "limits": {"*": {"rat": "5/min"}}}}},
        {"toolset": {"defered": True}},
        {"toolset": {"auth": {"jwt": [{"issuer": "https://host"}]}}},
    ],
)
def test_e2_a_mistake_does_not_fit_the_schema(file: Any) -> None:
    assert not fits(file)
