"""`limits` of a configuration are read where they hold; a mistake is one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.limits.test_call_limits import offered, said
from tests.test_config import hub, refusal, server_refusal

from mcp_toolset import Identity
from mcp_toolset.config import load_config
from mcp_toolset.config.models import HubConfig, ServerConfig
from mcp_toolset.policy import Limits

GIT = {"command": "git-server"}


def limits_in(read: HubConfig | ServerConfig) -> Mapping[str, Limits]:
    return read.extensions["limits"].limits if "limits" in read.extensions else {}


def test_i8_limits_stand_for_all_servers_and_in_one_of_them():
    read = hub(
        {
            "toolset": {"limits": {"*": {"rate": "60/min", "timeout": None}, "git/*": {"calls": 1000}}},
            "mcpServers": {"git": {**GIT, "limits": {"push": {"concurrency": 1, "timeout": 2.5}}}},
        }
    )
    assert limits_in(read) == {"*": Limits(rate="60/min"), "git/*": Limits(calls=1000)}
    assert limits_in(read.servers[0]) == {"push": Limits(concurrency=1, timeout=2.5)}
    assert limits_in(hub({"mcpServers": {"git": GIT}})) == {}


def test_i8_limits_of_a_pattern_may_differ_by_caller():
    some = [
        {"roles": ["admin"], "scopes": ["mcp"], "rate": "600/min"},
        {"principals": ["ci-*"], "calls": 5, "timeout": None},
    ]
    section = {"*": {"rate": "60/min", "for": some}}
    read = hub({"toolset": {"limits": section}, "mcpServers": {"git": {**GIT, "limits": section}}})
    callers = [Limits(rate="600/min", roles=["admin"], scopes=["mcp"]), Limits(calls=5, principals=("ci-*",))]
    assert limits_in(read) == limits_in(read.servers[0]) == {"*": Limits(rate="60/min", callers=callers)}
    assert limits_in(read) != {"*": Limits(rate="60/min", callers=callers[:1])}


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"*": {"for": {}}}, 'limits["*"].for: must be a list; write it as [{"roles": ["guest"], "rate":'),
        ({"*": {"for": [5]}}, 'limits["*"].for[0]: must be an object'),
        ({"*": {"for": [{"rate": "1/s"}]}}, 'limits["*"].for[0]: does not say for which callers it is'),
        ({"*": {"for": [{"roles": ["a"], "rate": None}]}}, 'limits["*"].for[0]: limits nothing'),
        ({"*": {"for": [{"roles": [], "rate": "1/s"}]}}, 'limits["*"].for[0].roles'),
        ({"*": {"for": [{"roles": "a", "rate": "1/s"}]}}, "write `roles` as a list of strings"),
        ({"*": {"for": [{"role": ["a"], "rate": "1/s"}]}}, "unknown limit; did you mean `roles`?"),
        ({"*": {"for": [{"roles": ["a"], "rate": "1/x"}]}}, 'limits["*"].for[0].rate: cannot be used'),
        ({"*": {"for": [{"roles": ["a"], "for": []}]}}, 'limits["*"].for[0].for: unknown limit'),
        ({"*": {"roles": ["a"], "rate": "1/s"}}, 'limits["*"].roles: unknown limit'),
        ({"*": {"rate": "60/mn"}}, 'limits["*"].rate: cannot be used; did you mean `60/min`?'),
        ({"*": {"rte": "60/min"}}, 'limits["*"].rte: unknown limit; did you mean `rate`?'),
        ({"*": {"x": 1}}, "unknown limit; use one of `rate`, `calls`"),
        ({"*": {"concurrency": 0}}, "write a positive whole number"),
        ({"*": {"concurrency": 2.5}}, "write a positive whole number"),
        ({"*": {"timeout": -1}}, "write a positive number of seconds"),
        ({"*": 5}, 'limits["*"]: must be an object; write it as {"rate": "60/min"}'),
        ({"rate": "60/min"}, 'limits.rate: must be an object; write it as {"rate": "60/min"}'),
        ({"readonly:*": {"rate": "1/s"}}, "did you mean `readOnly:*`?"),
        ([], "write `limits` as an object"),
    ],
)
def test_i8_limits_that_cannot_be_used_name_the_place_and_what_to_write(section: Any, told: str):
    assert told in refusal({"toolset": {"limits": section}, "mcpServers": {}})
    fault = server_refusal({**GIT, "limits": section})
    assert told in fault and "mcpServers.git.limits" in fault


def test_p9_the_example_of_the_page_is_read_as_the_page_says():
    read = load_config(Path(__file__).parents[3] / "examples" / "limits" / "mcp.json")
    (git,) = read.servers
    retries = git.extensions["retries"]
    assert not git.fault and (retries.retries, retries.breaker) == (2, (5, 30.0))
    log = offered("git_log", "git", "git_log", read_only=True)
    assert said(limits_in(read), log, servers={"git": limits_in(git)}) == {
        "rate": "10/min",
        "concurrency": 2,
        "timeout": 30,
        "result_bytes": 200000,
    }


def test_i8_the_example_of_callers_is_read_as_the_page_says(monkeypatch: pytest.MonkeyPatch):
    for name in ("CI_TOKEN", "ANN_TOKEN"):
        monkeypatch.setenv(name, "t" * 20)
    read = load_config(Path(__file__).parents[3] / "examples" / "limits" / "callers.json")
    limits, tool = limits_in(read), offered("git_log", "git", "log")
    for name, expected in {
        "ann": {"rate": "600/min", "timeout": 30},
        "ci": {"rate": "10/min", "timeout": 30, "calls": "500/day"},
    }.items():
        assert read.callers is not None
        caller = Identity.of(name, roles=read.callers.named[name].roles)
        assert said(limits, tool, caller) == expected
    assert said(limits, tool) == {"rate": "60/min", "timeout": 30}
