"""`mcp-toolset pack` writes MCP Bundles that start as their manifest says, without a secret in them."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.commandline import CommandLine, environment, line

__all__ = ["line"]

APP = '''
import os
from shop.prices import price
from mcp_toolset import Toolset, serve, tool

@tool(read_only=True)
def cost(number: int) -> str:
    """Say what some cost."""
    from shop import units
    return f"{price(number)} {units.UNIT} {os.environ['SHOP_KEY']} {os.environ.get('SHOP_NAME')}"

if __name__ == "__main__":
    serve(Toolset(cost, name="shop"))
'''

STRICT: dict[str, Any] = {"additionalProperties": False}
TEXT = {"type": "string", "minLength": 1}
# The manifest, version 0.3, as far as this package writes it.
MANIFEST: dict[str, Any] = {
    "type": "object",
    **STRICT,
    "required": ["manifest_version", "name", "version", "description", "author", "server"],
    "properties": {
        "manifest_version": {"const": "0.3"},
        "name": TEXT,
        "version": {"pattern": r"^\d+\.\d+\.\d+"},
        "description": TEXT,
        "author": {**STRICT, "required": ["name"], "properties": {"name": TEXT}},
        "server": {
            **STRICT,
            "required": ["type", "entry_point", "mcp_config"],
            "properties": {
                "type": {"const": "python"},
                "entry_point": TEXT,
                "mcp_config": {
                    **STRICT,
                    "required": ["command"],
                    "properties": {
                        "command": TEXT,
                        "args": {"type": "array", "items": TEXT},
                        "env": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                },
            },
        },
        "tools": {
            "type": "array",
            "items": {**STRICT, "required": ["name"], "properties": {"name": TEXT, "description": TEXT}},
        },
        "tools_generated": {"type": "boolean"},
        "compatibility": {
            **STRICT,
            "properties": {
                "platforms": {"type": "array", "items": {"enum": ["darwin", "win32", "linux"]}},
                "runtimes": {**STRICT, "properties": {"python": TEXT}},
            },
        },
        "user_config": {
            "type": "object",
            "additionalProperties": {
                **STRICT,
                "required": ["type", "title", "description"],
                "properties": {
                    "type": {"enum": ["string", "directory", "file"]},
                    "title": TEXT,
                    "description": TEXT,
                    "required": {"type": "boolean"},
                    "sensitive": {"type": "boolean"},
                    "default": {"type": "string"},
                },
            },
        },
    },
}


@pytest.fixture
def shop(line: CommandLine) -> CommandLine:
    """The folder of a program with two modules of its own, and files that no bundle may have."""
    (line.folder / "shop").mkdir()
    line.write("app.py", APP)
    line.write("shop/__init__.py", "")
    line.write(
        "shop/prices.py", "from .units import UNIT\n\ndef price(number: int) -> int:\n    return number * 3\n"
    )
    line.write("shop/units.py", "UNIT = 'crowns'\n")
    line.write("other.py", "raise RuntimeError\n")
    line.write(".env", "SHOP_KEY=sk-live-0123456789\n")
    return line


def packed(line: CommandLine, *arguments: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The manifest and the texts of a bundle."""
    done = line.run("pack", *arguments, "-o", "made.mcpb")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(line.folder / "made.mcpb") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    manifest = json.loads(texts["manifest.json"])
    jsonschema_rs.validator_for(MANIFEST).validate(manifest)
    assert manifest["server"]["entry_point"] in texts
    asked = set(re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(manifest["server"])))
    assert asked == set(manifest.get("user_config", {}))
    return manifest, texts


@pytest.mark.anyio
async def test_e10_a_packed_program_starts_as_its_manifest_says(shop: CommandLine, tmp_path: Path) -> None:
    manifest, texts = packed(shop, "app.py", "--ask", "SHOP_KEY", "--ask", "SHOP_NAME:text=ours")
    own = {"server/app.py", "server/shop/__init__.py", "server/shop/prices.py", "server/shop/units.py"}
    assert set(texts) == {"manifest.json", "main.py", "pyproject.toml"} | own
    assert manifest["tools"] == [{"name": "cost", "description": "Say what some cost."}]
    home, folder = tmp_path / "home", tmp_path / "unpacked"
    home.mkdir()
    with zipfile.ZipFile(shop.folder / "made.mcpb") as archive:
        archive.extractall(folder)
    start = manifest["server"]["mcp_config"]
    assert (start["command"], start["args"][:3]) == ("uv", ["run", "--directory", "${__dirname}"])
    answers = {"${user_config.shop_key}": "a key", "${user_config.shop_name}": "ours"}
    env = {name: answers[text] for name, text in start["env"].items()}
    # What uv does once the packages are there: it starts the program with the Python that has them.
    program = StdioServerParameters(
        command=sys.executable, args=start["args"][3:], env={**environment(home), **env}, cwd=folder
    )
    with anyio.fail_after(60):
        async with Client(stdio_client(program), mode="legacy") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["cost"]
            said = await client.call_tool("cost", {"number": 2})
    assert [getattr(block, "text", "") for block in said.content] == ["6 crowns a key ours"]


@pytest.mark.needs("inbound_auth")
def test_e10_the_bundle_of_a_configuration_has_no_secret_and_no_path_of_this_machine(
    shop: CommandLine, tmp_path: Path
) -> None:
    secrets = [f"sk-live-{number}-abcdef" for number in range(7)]
    shop.write(".env", f"FROM_FILE={secrets[5]}\n")
    servers: dict[str, Any] = {
        "mine": {
            "command": "python",
            "args": ["app.py", f"--api-key={secrets[0]}", f"--notes={tmp_path}"],
            "env": {"TOKEN": secrets[1], "LOG_LEVEL": "info"},
            "envFile": ".env",
            "cwd": str(tmp_path),
        },
        "again": {"command": "npx", "args": ["-y", "again"], "env": {"TOKEN": secrets[2]}},
        "web": {
            "url": f"https://host.example/mcp?key={secrets[3]}",
            "headers": {"X-Key": f"Bearer {secrets[4]}"},
        },
        "keyring": {"url": "https://host.example/mcp", "headers": {"X-Key": "Bearer ${keyring:web-token}"}},
        "input": {"command": "npx", "args": ["x", "${input:city}", "${REPOSITORY:-~/src}", "${LEVEL:-high}"]},
        "off": {"command": "npx", "env": {"KEY": secrets[6]}, "disabled": True},
    }
    inputs = [{"id": "city", "description": "A city", "default": "Brno", "type": "promptString"}]
    toolset = {"deferred": True, "auth": {"tokens": {"ci": {"token": secrets[6]}}}}
    shop.write(
        "mcp.json",
        "// " + secrets[0] + "\n" + json.dumps({"servers": servers, "inputs": inputs, "toolset": toolset}),
    )
    manifest, texts = packed(shop, "mcp.json", "--name", "team", "--version", "1.2.0", "--author", "Us")
    whole = "\n".join(texts.values())
    assert [value for value in (*secrets, str(tmp_path), str(shop.folder)) if value in whole] == []
    served = json.loads(texts["server/mcp.json"])
    assert served["toolset"] == {"deferred": True} and list(served["mcpServers"]) == [*servers][:-1]
    assert served["mcpServers"]["mine"] == {
        "command": "python",
        "args": ["${workspaceFolder}/app.py", "--api-key=${MINE_API_KEY}", "--notes=${MINE_NOTES}"],
        "cwd": "${MINE_FOLDER}",
        "env": {"FROM_FILE": "${FROM_FILE}", "TOKEN": "${TOKEN}", "LOG_LEVEL": "info"},
    }
    assert served["mcpServers"]["again"]["env"] == {"TOKEN": "${TOKEN_2}"}
    assert served["mcpServers"]["keyring"]["headers"] == {"X-Key": "Bearer ${WEB_TOKEN}"}
    kinds = {
        name: (one["type"], one.get("sensitive", False)) for name, one in manifest["user_config"].items()
    }
    assert {name for name, kind in kinds.items() if kind == ("directory", False)} == {
        "mine_notes",
        "mine_folder",
        "repository",
    }
    assert {name for name, kind in kinds.items() if kind == ("string", False)} == {"mcp_input_city", "level"}
    assert all(
        kinds[name] == ("string", True) for name in ("token", "token_2", "web_url", "web_x_key", "from_file")
    )
    assert manifest["user_config"]["repository"]["default"] == "${HOME}/src"
    assert "server/shop/units.py" in texts and manifest["tools_generated"]


def test_e10_files_and_secrets_are_found_however_they_are_written(shop: CommandLine) -> None:
    (shop.folder / ".vscode").mkdir()
    servers = {
        "py": {"command": "python", "args": ["${workspaceFolder}/app.py", "${workspaceFolder}/shop"]},
        "box": {
            "command": "docker",
            "args": ["run", "-e", "BOX_TOKEN=tok-987654321", "${workspaceFolder}/none"],
        },
        "db": {"command": "npx", "args": ["db", "postgresql://ann:pass-0987@db.example/shop"]},
    }
    shop.write(".vscode/mcp.json", json.dumps({"servers": servers}))
    _, texts = packed(shop, ".vscode/mcp.json")
    assert {"server/app.py", "server/shop/prices.py"} <= texts.keys()
    served = json.loads(texts["server/mcp.json"])["mcpServers"]
    assert served["py"]["args"] == ["${workspaceFolder}/app.py", "${PY_FOLDER}"]
    assert served["box"]["args"][2:] == ["BOX_TOKEN=${BOX_BOX_TOKEN}", "${workspaceFolder}/none"]
    assert served["db"]["args"][1] == "postgresql://ann:${DB_SECRET}@db.example/shop"


@pytest.mark.needs("limits")
def test_e10_names_of_tools_and_claims_that_sound_like_secrets_are_no_questions(line: CommandLine) -> None:
    plain: dict[str, Any] = {
        "names": {"get_token": "token_of_a_day"},
        "forward": {"X-Api-Key": "identity.name"},
    }
    entry = {
        "url": "https://host.example/mcp",
        **plain,
        "auth": {"type": "oauth", "client_id": "us", "client_secret": "sk-live-0123"},
    }
    limits = {"limits": {"get_token": {"rate": "60/min"}}, "permissions": {"deny": ["delete_api_key"]}}
    line.write("mcp.json", json.dumps({"mcpServers": {"a": entry}, "toolset": limits}))
    manifest, texts = packed(line, "mcp.json")
    served = json.loads(texts["server/mcp.json"])
    assert list(manifest["user_config"]) == ["a_client_secret"]
    assert served["toolset"] == limits and {key: served["mcpServers"]["a"][key] for key in plain} == plain


def test_e10_a_file_of_the_home_that_is_not_there_yet_is_a_question(line: CommandLine) -> None:
    arguments = ["--database", str(line.folder / "new" / "data.db"), "/v1/things"]
    line.write("mcp.json", json.dumps({"mcpServers": {"a": {"command": "npx", "args": arguments}}}))
    manifest, texts = packed(line, "mcp.json")
    assert manifest["user_config"]["a_database"]["type"] == "file"
    assert json.loads(texts["server/mcp.json"])["mcpServers"]["a"]["args"][1:] == [
        "${A_DATABASE}",
        "/v1/things",
    ]


def test_e10_a_value_that_is_no_secret_is_kept_when_asked(line: CommandLine) -> None:
    line.write(
        "mcp.json", json.dumps({"mcpServers": {"a": {"command": "npx", "env": {"REGION": "eu-west-1"}}}})
    )
    manifest, texts = packed(line, "mcp.json", "--keep", "REGION")
    assert "user_config" not in manifest and '"REGION": "eu-west-1"' in texts["server/mcp.json"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["app.py", "--ask", "SHOP_KEY=abc"],
            "--ask SHOP_KEY: the default of a secret would be in the bundle",
        ),
        (["app.py", "--ask", "SHOP_KEY:number"], "--ask SHOP_KEY: cannot be read; write NAME or NAME:KIND"),
        (["app.py", "--include", ".env"], ".env: contains a secret, and would be in the bundle"),
        (["app.py", "--include", ".."], "is not in"),
        (["app.py", "--include", "nothing"], "--include nothing: no such file"),
        (["app.py", "--version", "1"], "'1' is no version of a bundle; write --version with three numbers"),
        (["app.py", "--name", "a b"], "'a b' cannot name a bundle"),
        (["https://host.example/mcp"], "write the server into a configuration, and pack that"),
        (
            ["mcp.json"],
            "mcpServers.a.command: names a program by a path of this machine; write a program that",
        ),
        (["off.json"], "no server is enabled"),
        (["typo.json"], "did you mean `exclude`?"),
        (["plain.json", "--ask", "X"], "--ask X: no server of plain.json reads it"),
        (["leak.py", "--ask", "LEAKED"], "leak.py: contains a secret"),
        (["keyed.py"], "keyed.py: contains a secret"),
    ],
)
def test_e10_what_cannot_be_packed_is_an_error_of_one_line(
    shop: CommandLine, arguments: list[str], says: str
) -> None:
    for name, entry in {
        "mcp": {"command": "/opt/venv/bin/server"},
        "off": {"command": "npx", "disabled": True},
        "typo": {"command": "npx", "exlude": []},
        "plain": {"command": "npx"},
    }.items():
        shop.write(f"{name}.json", json.dumps({"mcpServers": {"a": entry}}))
    shop.write("keyed.py", APP + "\nKEY = 'ghp_" + "0123456789abcdef" * 2 + "'\n")
    shop.write("leak.py", APP.replace("os.environ['SHOP_KEY']", "'sk-live-0123456789'"))
    done = shop.run("pack", *arguments, env={"LEAKED": "sk-live-0123456789"})
    wrong_value = says.startswith("--ask SHOP_KEY")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1 + wrong_value, "", 1), (
        done.stderr
    )
    assert says in done.stderr and "sk-live" not in done.stderr
    assert not list(shop.folder.glob("*.mcpb"))


def test_e10_the_command_says_what_users_are_asked_for_and_need(shop: CommandLine) -> None:
    done = shop.run("pack", "app.py", "--ask", "SHOP_KEY")
    assert done.stdout.splitlines()[1:] == [
        "asks for SHOP_KEY (secret)",
        "needs uv",
        "the code reads SHOP_NAME, which the user is not asked for; see --ask",
    ]
    assert done.stdout.startswith("app.mcpb: 4 files of app.py, ")
    first = (shop.folder / "app.mcpb").read_bytes()
    shop.run("pack", "app.py", "--ask", "SHOP_KEY")
    assert (shop.folder / "app.mcpb").read_bytes() == first


def test_e10_a_file_that_is_no_bundle_is_not_overwritten(line: CommandLine) -> None:
    text = "from mcp_toolset import tool\n\n\n@tool\ndef one() -> int:\n    return 1\n"
    line.write("app.py", text)
    done = line.run("pack", "app.py", "-o", "app.py")
    assert done.returncode == 1
    assert "app.py: is no bundle, and would be lost; choose another -o FILE" in done.stderr
    assert (line.folder / "app.py").read_text() == text
    assert line.run("pack", "app.py", "-o", "app.mcpb").returncode == 0
    assert line.run("pack", "app.py", "-o", "app.mcpb").returncode == 0
