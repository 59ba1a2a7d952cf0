"""The files of deploy/ start commands that exist, and the container's health check tells life from death."""

from __future__ import annotations

import json
import re
import runpy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
from ruamel.yaml import YAML
from tests.support.config import config_of

from mcp_toolset.cli.commands.serve import serve_command

HEALTH_PATH = "/health"
READY_PATH = "/ready"

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "mcp-toolset"
answers: Callable[[str], bool] = runpy.run_path(str(DEPLOY / "answers.py"))["answers"]


@contextmanager
def answering(status: int) -> Iterator[tuple[str, list[str]]]:
    """A server that answers every request with one status, and the requests it got."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Host']}")
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/health", asked
        finally:
            server.shutdown()
            thread.join(30)


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (401, False), (421, False), (503, False)])
def test_r7_the_health_check_knows_a_server_that_answers(status: int, healthy: bool) -> None:
    with answering(status) as (url, asked):
        assert answers(url) is healthy
    assert asked == ["/health localhost"]
    assert answers(url) is False


def served(words: list[str]) -> dict[str, object]:
    """The options of a `serve` command line, as click reads them."""
    assert words[0] == "serve"
    return serve_command.make_context("serve", words[1:]).params


def test_r7_the_container_the_replicas_and_the_chart_start_what_exists() -> None:
    recipe = (DEPLOY / "Containerfile").read_text()
    compose = YAML(typ="safe").load(DEPLOY / "compose" / "compose.yaml")
    chart = (CHART / "templates" / "deployment.yaml").read_text()
    (command,) = re.findall(r"^CMD (\[.*\])$", recipe, re.MULTILINE)
    in_chart = chart.split("args:\n")[1].split("{{- range")[0]
    for words in (
        json.loads(command),
        compose["services"]["toolset"]["command"],
        [line.strip().removeprefix("- ") for line in in_chart.splitlines() if line.strip()],
    ):
        said = served(words)
        assert (said["transport"], said["host"], said["port"]) == ("http", "0.0.0.0", 8000)
    assert compose["services"]["toolset"]["deploy"]["replicas"] == 3
    variables = {option.envvar for option in serve_command.params if isinstance(option, click.Option)}
    assert "MCP_TOOLSET_SHARED" in variables & compose["services"]["toolset"]["environment"].keys()
    assert "MCP_TOOLSET_SHARED" in chart and "/opt/mcp-toolset/answers.py" in recipe


def test_e5_the_probes_of_the_chart_and_the_proxy_ask_pages_that_need_no_token() -> None:
    chart = (CHART / "templates" / "deployment.yaml").read_text()
    asked = re.findall(r"(\w+)Probe:\n +httpGet: \{ path: (\S+), port: http \}", chart)
    assert dict(asked) == {"startup": HEALTH_PATH, "readiness": READY_PATH, "liveness": HEALTH_PATH}
    assert f"uri {READY_PATH} " in (DEPLOY / "compose" / "haproxy.cfg").read_text()


@pytest.mark.needs("inbound_auth")
def test_r7_the_configurations_of_replicas_and_chart_ask_for_a_token() -> None:
    environ = {"CI_TOKEN": "a token that is long enough"}
    values = YAML(typ="safe").load(CHART / "values.yaml")
    for text in ((DEPLOY / "compose" / "mcp.json").read_text(), values["config"]):
        config = config_of(json.loads(text), source="mcp.json", environ=environ)
        assert config.callers is not None and config.callers.rules()


@pytest.mark.parametrize("name", ["image", "build"])
def test_r7_the_container_has_the_versions_that_are_tested(name: str) -> None:
    def pins(file: str) -> set[tuple[str, str]]:
        text = (ROOT / "requirements" / file).read_text()
        return set(re.findall(r"^([a-z0-9][a-z0-9.-]*)==(\S+)", text, re.MULTILINE))

    assert pins(f"{name}.txt") and pins(f"{name}.txt") <= pins("dev.txt") | pins("run.txt")


def test_r7_the_chart_has_the_version_of_the_package() -> None:
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{chart["version"]}"\n' in project and chart["appVersion"] == chart["version"]
