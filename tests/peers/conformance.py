"""The official conformance suite, run against what this project makes, and what came of it as a table.

    scripts/conformance                 servers/everything, the bridge over it, the upstream connection, and
                                        servers/everything once more, which wants a token (`tokens`), and a
                                        server of skills, direct and through the bridge (`skills`)
    scripts/conformance --fastmcp       FastMCP's proxy over the same server as well, for the record
    scripts/conformance server bridge   only these subjects
    scripts/conformance --sdk DIR server bridge stdio
                                        the SDK's everything-server in place of ours, from a checkout of its
                                        `examples/servers`; `stdio` is the bridge that starts it

Fails if a scored scenario of `server`, `client` or `skills` fails, if `bridge` or `tokens` differs from
`server` in any check, or if skills do through the bridge.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

from tests.peers.processes import listening_process
from tests.peers.programs import HERE, NODE_PLACE, ROOT, node_script

REVISIONS = ("2026-07-28", "2025-11-25")
SUBJECTS = ("server", "bridge", "client", "tokens", "skills")
SKILLS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")
"""The scenarios of servers of skills (SEP-2640), which no revision requires."""

STDIO = "from mcp_everything_server.server import mcp; mcp.run(transport='stdio')"
SUITE = "conformance/dist/index.js"
EVERYTHING = ROOT / "servers" / "everything" / "everything.py"
BENCH_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
SERVE = [sys.executable, "-m", "mcp_toolset", "serve"]
OVER_HTTP = ["--transport", "http", "--port", "0"]
SAID = r"at (http://\S+)/mcp"
DEADLINE = 600
"""Seconds that one run of a requirement set may take."""

PATIENCE = 180
"""Seconds that one scenario may take: the suite starts a client for each of them, all at once."""

_NOT_SCORED = re.compile(r"^\s+[✓✗~-] (\S+) \((?:extension|added-after-release|pending)\)", re.MULTILINE)
_RAN = re.compile(r"^[✓✗~-] (\S+): (\d+) passed, (\d+) failed", re.MULTILINE)


@dataclass
class Run:
    """What one subject did with one requirement set.

    Attributes:
        checks: How often each `(scenario, check, status)` came up.
        scored: The scenarios that the revision requires.
    """

    checks: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    scored: frozenset[str] = frozenset()

    def count(self, status: str, *, scored: bool) -> int:
        return sum(
            number
            for (scenario, _, found), number in self.checks.items()
            if found == status and (scenario in self.scored) == scored
        )

    def failures(self) -> list[str]:
        """The scored checks that failed."""
        return sorted(
            f"{scenario}: {check}"
            for scenario, check, status in self.checks
            if status == "FAILURE" and scenario in self.scored
        )

    def verdicts(self) -> Counter[tuple[str, str, str]]:
        """What is to be the same through the bridge."""
        return self.checks


def conform(command: Sequence[str], revision: str) -> Run:
    """Run one requirement set: `server --url …` or `client --command …`."""
    return _run([*command, "--requirements", revision, "--timeout", str(PATIENCE * 1000)])


def conform_skills(url: str, revision: str) -> Run:
    """Run the scenarios of skills against a server; all count as required."""
    whole = Run()
    for scenario in SKILLS:
        run = _run(["server", "--url", url, "--scenario", scenario, "--spec-version", revision, "--force"])
        whole.checks += run.checks
    whole.scored = frozenset(scenario for scenario, _, _ in whole.checks)
    return whole


def _run(command: Sequence[str]) -> Run:
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [str(NODE_PLACE / "node_modules/node/bin/node"), node_script(SUITE), *command]
            + ["--output-dir", place],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
            # The suite's servers have the addresses of others of earlier runs, whose eras are known by them.
            env={**os.environ, "MCP_TOOLSET_CACHE": "off"},
        )
        run = Run()
        for file in Path(place).rglob("checks.json"):
            scenario = _scenario_of(file.parent.relative_to(place).as_posix())
            for check in json.loads(file.read_text()):
                run.checks[scenario, check["id"], check["status"]] += 1
    if not run.checks:
        raise RuntimeError(f"the suite said nothing that can be used:\n{done.stdout[-2000:]}")
    ran = {scenario for scenario, _, _ in run.checks}
    run.scored = frozenset(ran - set(_NOT_SCORED.findall(done.stdout)))
    return run


def _scenario_of(folder: str) -> str:
    """`server-tools-list-2026-11-21T19-54-00-793Z` is the folder of `tools-list`."""
    return re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder).removeprefix("server-")


@contextmanager
def everything() -> Generator[str]:
    """`servers/everything` over HTTP; yields its address."""
    with listening_process([*SERVE, str(EVERYTHING), *OVER_HTTP], SAID) as base:
        yield f"{base}/mcp"


@contextmanager
def skills() -> Generator[str]:
    """`examples/skills` without its tools, over HTTP; yields its address."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "skills.json"
        file.write_text(
            json.dumps({"toolset": {"skills": str(ROOT / "examples/skills/skills")}, "mcpServers": {}})
        )
        with listening_process([*SERVE, str(file), *OVER_HTTP], SAID) as base:
            yield f"{base}/mcp"


@contextmanager
def everything_with_tokens() -> Generator[str]:
    """The same where each request needs a token, behind a proxy that adds it; yields the proxy's address.

    The suite has no scenarios for servers with authentication, and its client sends no token.
    """
    environment = {**os.environ, "TOKEN": secrets.token_urlsafe(24), "PYTHONPATH": str(ROOT)}
    command = [*SERVE, str(EVERYTHING), *OVER_HTTP, "--auth-token-env", "TOKEN"]
    proxy = [sys.executable, str(HERE / "token_proxy.py")]
    with (
        listening_process(command, SAID, environment) as base,
        listening_process([*proxy, base], r"proxy at (\S+)", environment) as proxied,
    ):
        yield f"{proxied}/mcp"


@contextmanager
def sdk_everything(folder: Path) -> Generator[str]:
    """The SDK's everything-server over HTTP, from a checkout; yields its address."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "mcp_everything_server", "--port", str(port), "--log-level", "ERROR"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(folder)})
    try:
        _wait_for(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def bridge_on_stdio(folder: Path) -> Generator[str]:
    """The bridge that starts the SDK's everything-server itself; yields the bridge's address."""
    entry = {"command": sys.executable, "args": ["-c", STDIO], "env": {"PYTHONPATH": str(folder)}}
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "hub.json"
        file.write_text(json.dumps({"mcpServers": {"up": {**entry, "prefix": False}}}))
        with listening_process([*SERVE, str(file), *OVER_HTTP], SAID) as base:
            yield f"{base}/mcp"


@contextmanager
def bridge(upstream: str) -> Generator[str]:
    """The bridge with a server mounted, and nothing else; yields its address.

    The suite expects that a client which takes no tasks is refused a tool that runs only as one. By default
    the bridge waits for the task on behalf of such a client.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "mcp.json"
        file.write_text(
            json.dumps({"mcpServers": {"up": {"url": upstream, "prefix": False, "task_timeout": 0}}})
        )
        with listening_process([*SERVE, str(file), *OVER_HTTP], SAID) as base:
            yield f"{base}/mcp"


@contextmanager
def fastmcp(upstream: str) -> Generator[str]:
    """FastMCP's proxy over a server; yields its address."""
    command = [str(BENCH_PYTHON), str(HERE / "conformance_fastmcp.py"), upstream]
    with listening_process(command, r"at (http://\S+)/mcp") as base:
        # It says where it will listen before it does.
        _wait_for(base)
        yield f"{base}/mcp"


def _wait_for(base: str) -> None:
    parts = urlsplit(base)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            threading.Event().wait(0.1)


def client_command() -> str:
    return f"{sys.executable} {HERE / 'conformance_client.py'}"


def measured(subjects: Sequence[str], sdk: Path | None = None) -> dict[tuple[str, str], Run]:
    """Each subject with each revision."""
    runs: dict[tuple[str, str], Run] = {}
    with everything() if sdk is None else sdk_everything(sdk) as direct:
        for subject in subjects:
            if subject == "skills":
                with skills() as url, bridge(url) as bridged:
                    for (name, at), revision in product(
                        (("skills", url), ("bridged skills", bridged)), REVISIONS
                    ):
                        runs[name, revision] = conform_skills(at, revision)
                continue
            if subject == "client":
                for revision in REVISIONS:
                    runs[subject, revision] = conform(["client", "--command", client_command()], revision)
                continue
            with _address(subject, direct, sdk) as url, ThreadPoolExecutor() as pool:
                found = pool.map(lambda revision: conform(["server", "--url", url], revision), REVISIONS)
                runs |= {(subject, revision): run for revision, run in zip(REVISIONS, found, strict=True)}
    return runs


@contextmanager
def _address(subject: str, direct: str, sdk: Path | None) -> Generator[str]:
    if subject == "server":
        yield direct
        return
    if subject == "stdio" and sdk is not None:
        with bridge_on_stdio(sdk) as url:
            yield url
        return
    if subject == "tokens":
        with everything_with_tokens() as url:
            yield url
        return
    with (bridge if subject == "bridge" else fastmcp)(direct) as url:
        yield url


def difference(run: Run, other: Run) -> list[str]:
    """The checks that came out otherwise in `other`."""
    lost, gained = run.verdicts() - other.verdicts(), other.verdicts() - run.verdicts()
    return [
        f"{sign} {scenario}: {check} {status}"
        for sign, checks in (("-", lost), ("+", gained))
        for scenario, check, status in sorted(checks)
    ]


def table(runs: dict[tuple[str, str], Run]) -> str:
    lines = [
        "| subject | revision | scored: passed | failed | not scored: passed | failed |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (subject, revision), run in runs.items():
        cells = [
            run.count(status, scored=scored) for scored in (True, False) for status in ("SUCCESS", "FAILURE")
        ]
        lines.append(f"| {subject} | {revision} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def faults(runs: dict[tuple[str, str], Run]) -> list[str]:
    """Why the run as a whole fails; FastMCP's proxy is there for the record only."""
    found = [
        f"{subject} {revision}: {failure}"
        for (subject, revision), run in runs.items()
        if subject in ("server", "client", "skills")
        for failure in run.failures()
    ]
    for revision in REVISIONS:
        if ("skills", revision) in runs:
            compared = difference(runs["skills", revision], runs["bridged skills", revision])
            found += [f"bridged skills {revision}: {line}" for line in compared]
    for subject, revision in product(("bridge", "stdio", "tokens"), REVISIONS):
        if ("server", revision) in runs and (subject, revision) in runs:
            compared = difference(runs["server", revision], runs[subject, revision])
            found += [f"{subject} {revision}: {line}" for line in compared]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; all by default"
    )
    parser.add_argument(
        "--fastmcp", action="store_true", help="FastMCP's proxy as well; needs scripts/install bench"
    )
    parser.add_argument("--sdk", type=Path, metavar="DIR", help="a checkout of the SDK's everything-server")
    given = parser.parse_args()
    subjects = given.subjects or list(SUBJECTS)
    unknown = set(subjects) - {*SUBJECTS, *(["stdio"] if given.sdk else [])}
    if unknown:
        parser.error(f"there is no subject {sorted(unknown)[0]!r}")
    runs = measured([*subjects, "fastmcp"] if given.fastmcp else subjects, given.sdk)
    sys.stdout.write(table(runs) + "\n")
    wrong = faults(runs)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
