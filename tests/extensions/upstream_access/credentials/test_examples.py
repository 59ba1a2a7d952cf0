"""The examples of the page about logins."""

from __future__ import annotations

import runpy
from pathlib import Path

from mcp_toolset.auth import ClientCredentials, EnterpriseLogin, OAuth
from mcp_toolset.config import load_config

EXAMPLES = Path(__file__).parents[4] / "examples" / "upstream_login"
ENVIRON = {name: f"the-{name}" for name in ("DESK_SECRET", "ROBOT_SECRET", "WORK_SECRET", "SSO_ID_TOKEN")}


def test_i4_the_configuration_of_the_page_can_be_used() -> None:
    servers = load_config(EXAMPLES / "mcp.json", environ=ENVIRON).servers
    assert [server.fault for server in servers] == [""] * 4
    kinds = [type(server.extensions["access"].auth) for server in servers]
    assert kinds == [OAuth, OAuth, ClientCredentials, EnterpriseLogin]


def test_i4_the_program_of_the_page_can_be_used() -> None:
    toolset = runpy.run_path(str(EXAMPLES / "program.py"))["toolset"]("a-secret")
    assert [source.source_name for source in toolset.sources()] == ["wiki", "robot"]


def test_u79_the_rule_of_the_page_can_be_used() -> None:
    (server,) = load_config(EXAMPLES / "egress.json", environ={}).servers
    assert server.fault == "" and server.egress == ("login.corp", "*.dev.test", "10.0.0.0/8")
