"""`serve` over HTTP with callers who are to be known: its options, what it refuses, and a real process."""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection

import pytest
from tests.cli.commandline import PATIENCE, CommandLine, line
from tests.transports.authenticated import JSON
from tests.transports.test_legacy_sessions import INITIALIZE

from mcp_toolset import Toolset, ToolsetError, ToolsetServer
from mcp_toolset.transports.http.arrival import check_address

pytestmark = pytest.mark.needs("inbound_auth")

__all__ = ["line"]

TOKEN = "ci-0123456789abcdef"
HTTP = ["--transport", "http", "--port", "0"]
ISSUER = ["--issuer", "https://idp.example.com"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--auth-token-env", "CI_TOKEN"], 2, "are for HTTP: add --transport http"),
        ([*ISSUER, "--audience", "x"], 2, "are for HTTP: add --transport http"),
        ([*HTTP, "--auth-token-env", "NOPE"], 1, "the environment variable NOPE is not set"),
        ([*HTTP, "--auth-token-env", "ci=SHORT"], 1, "the token ci has fewer than 16 characters"),
        ([*HTTP, "--token-env", "SHORT"], 1, "the token SHORT has fewer than 16 characters"),
        (["--token-env", "CI_TOKEN"], 2, "use --auth-token-env with --transport http"),
        ([*HTTP, *ISSUER], 2, "--issuer needs --audience"),
        ([*HTTP, "--audience", "x"], 2, "belong to --issuer"),
        ([*HTTP, "--jwks-url", "https://idp.example.com/jwks"], 2, "belong to --issuer"),
        ([*HTTP, "--issuer", "http://idp.example.com", "--audience", "x"], 1, "is no https URL"),
        ([*HTTP, "--required-scope", "mcp"], 2, "--required-scope needs --issuer or --auth-token-env"),
        ([*HTTP, "--host", "0.0.0.0"], 1, "not listening on 0.0.0.0: without authentication"),
        ([*HTTP, "--host", "::"], 1, "--auth-token-env, or --issuer with --audience"),
        ([*HTTP, "--host", "tools.example.com"], 1, "allow it with --insecure"),
    ],
)
def test_i1_i2_what_would_let_strangers_call_is_refused_with_the_options_that_mend_it(
    line: CommandLine, arguments: list[str], code: int, says: str
) -> None:
    done = line.here("serve", "kit.py:echo", *arguments, env={"CI_TOKEN": TOKEN, "SHORT": "s3cr3t"})
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr and "Traceback" not in done.stderr
    assert TOKEN not in done.stderr and "s3cr3t" not in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_i2_loopback_needs_no_authentication(host: str) -> None:
    check_address(host, authenticated=False, insecure=False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.0.1", "tools.example.com", "127.0.0.1.evil.example"]
)
def test_i2_other_addresses_need_authentication_or_insecure(host: str) -> None:
    with pytest.raises(ToolsetError, match="without authentication"):
        check_address(host, authenticated=False, insecure=False)
    check_address(host, authenticated=True, insecure=False)
    check_address(host, authenticated=False, insecure=True)


@pytest.mark.anyio
async def test_i2_a_program_is_refused_as_well() -> None:
    with pytest.raises(ToolsetError, match="not listening on 0.0.0.0"):
        await ToolsetServer(Toolset()).run_http(host="0.0.0.0", port=0)


def test_i1_serve_accepts_the_token_of_the_environment_and_no_other(line: CommandLine) -> None:
    def status(headers: dict[str, str]) -> int:
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("POST", "/mcp", json.dumps(INITIALIZE), {**JSON, **headers})
        with connection.getresponse() as found:
            found.read()
        connection.close()
        return found.status

    config = {"mcpServers": {}, "toolset": {"auth": {"tokens": {"ci": "${CI_TOKEN}"}}}}
    line.write("mcp.json", json.dumps(config))
    both = (("kit.py:echo", ["--auth-token-env", "ci=CI_TOKEN"]), ("mcp.json", []))
    for target, options in both:
        with line.fork("serve", target, *HTTP, *options, env={"CI_TOKEN": TOKEN}) as process:
            try:
                assert process.stderr is not None
                said = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", process.stderr.readline())
                assert said is not None
                port = int(said[1])
                assert status({}) == 401
                assert status({"authorization": "Bearer wrong"}) == 401
                assert status({"authorization": f"Bearer {TOKEN}"}) == 200
            finally:
                process.terminate()
            assert process.wait(PATIENCE) == 0 and TOKEN not in process.stderr.read()
