"""What counts as a secret of a mount, and how texts and log records are cleared of it."""

from __future__ import annotations

import base64
import json
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.cli.target import parse_target
from mcp_toolset.config import load_config
from mcp_toolset.errors import DefinitionError, TargetError
from mcp_toolset.upstream.secrets import Secrets, secret_arguments, secrets_of_url, shown_url
from mcp_toolset.upstream.target import link_to

TOKENS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=8, max_size=40
).filter(lambda text: bool(text.strip("*/._- ")))


@pytest.mark.parametrize(
    ("given", "said", "shown"),
    [
        ("1234", "pin 1234, 12345, x_1234", "pin ***, 12345, x_***"),
        ("hunter22", "xhunter22x", "x***x"),
        ("true", "it is true", "it is true"),
        ("abc", "abc", "abc"),
        ("-----BEGIN\nMIIEvQIBADAN\n-----END", "bad key: MIIEvQIBADAN", "bad key: ***"),
        ('say "hi" now', '{"a": "say \\"hi\\" now"}', '{"a": "***"}'),
        ("p@ss/word", "https://h/?k=p%40ss%2Fword", "https://h/?k=***"),
    ],
)
def test_u19_short_common_and_quoted_values(given: str, said: str, shown: str) -> None:
    assert Secrets.of([given]).scrubbed(said) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h.example/s/NmE3MTIz/mcp?k=v", "https://h.example/…"),
        ("https://me:pass@h.example:8443/", "https://h.example:8443"),
        ("http://[::1]:80/mcp", "http://[::1]:80/…"),
    ],
)
def test_u19_an_address_is_its_origin(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    link = link_to(url, name="up")
    assert link.shown == shown
    assert link.secrets.scrubbed(f"no answer from {url!r}") == f"no answer from {shown!r}"


@given(TOKENS, TOKENS)
def test_u19_what_was_given_is_not_in_what_is_said(token: str, other: str) -> None:
    link = link_to(["run", other, "--api-key", token], name="up", env={"A": token}, hidden=[other])
    for said in (f"login {token} as {other}", repr({"k": token, "o": other}), f"{token}{other}"):
        assert token not in link.secrets.scrubbed(said)
    assert other not in link.secrets.scrubbed(f"<{other}>")


def test_u19_log_records_of_the_http_client_are_cleared(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    link = link_to("https://h.example/s/NmE3MTIz/mcp?k=abcdef12", name="up")
    before = list(logging.getLogger("httpx2").filters)
    with link.secrets.kept_from_logs():
        logging.getLogger("httpx2").info("HTTP Request: POST %s", link.url)
        logging.getLogger("httpcore2.connection").debug("connect_tcp.started %r", ["abcdef12"])
        try:
            raise ValueError(link.url)
        except ValueError:
            logging.getLogger("mcp.client.streamable_http").exception("no NmE3MTIz")
    assert "NmE3MTIz" not in caplog.text and "abcdef12" not in caplog.text
    assert "HTTP Request: POST https://h.example/…" in caplog.text
    assert "ValueError" in caplog.text
    assert logging.getLogger("httpx2").filters == before


def test_u19_an_address_that_cannot_be_used_is_not_quoted() -> None:
    with pytest.raises(DefinitionError) as refused:
        link_to("ftp://me:abcdef12@host/NmE3MTIz", name="up")
    assert "abcdef12" not in str(refused.value) and "NmE3MTIz" not in str(refused.value)


@pytest.mark.parametrize("sign", ["#", "/", "?"])
@pytest.mark.parametrize("password", ["Hunter2Hunter2{}x", "{}Hunter2Hunter2", "70000{}Hunter2Hunter2"])
def test_u19_no_sign_in_a_password_shows_it(sign: str, password: str) -> None:
    url = f"http://u:{password.format(sign)}@127.0.0.1:1/mcp"
    assert "Hunter2" not in shown_url(url) and "70000" not in shown_url(url)
    told = Secrets.of(secrets_of_url(url)).scrubbed(f"no answer from {url}")
    assert "Hunter2" not in told and "70000" not in told
    try:
        link = link_to(url, name="up")
    except DefinitionError as refused:
        assert "Hunter2" not in str(refused) and "%23" in str(refused)
    else:
        # Every reader takes `u` for the host, and the rest for a path or a query.
        assert link.shown == "http://u:/…"


def test_u19_neither_a_file_nor_a_command_quotes_such_an_address(tmp_path: Path) -> None:
    url, file = "http://u:Hunter2Hunter2#x@127.0.0.1:1/mcp", tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"up": {"url": url}}}))
    (refused,) = load_config(file).servers
    assert re.search(r"mcpServers\.up\.url: not a web address.*%23", refused.fault)
    with pytest.raises(TargetError, match=r"^http://127\.0\.0\.1:1/…: not a web address.*%23") as given:
        parse_target(url)
    assert "Hunter2" not in f"{refused}{given.value}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host.example/@scope/mcp", "https://host.example/…"),
        ("http://localhost:8000/@scope?mail=a@b", "http://localhost:8000/…"),
        ("https://u:p%23x@host.example/mcp", "https://host.example/…"),
    ],
)
def test_u19_a_sign_behind_the_host_changes_nothing(url: str, shown: str) -> None:
    assert link_to(url, name="up").shown == shown_url(url) == shown


@pytest.mark.parametrize("url", ["postgres://u:Hunter2Hunter2#x@h/db", "redis://:Hunter2Hunter2@[x/0"])
def test_u19_an_address_in_an_argument_that_cannot_be_read_hides_its_password(url: str) -> None:
    assert "Hunter2" not in Secrets.of(secret_arguments(["--store", url])).scrubbed(f"cannot open {url}")


def test_u19_tokens_that_are_issued_later_are_blanked_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    issued: list[str] = []
    secrets = Secrets.of([], issued=lambda: tuple(issued))
    log = logging.getLogger("httpcore2.http11")
    with secrets.kept_from_logs():
        for token in ("f1rstF1rst", "sec0ndSec0nd"):
            assert secrets.scrubbed(token) == token
            issued.append(token)
            log.debug("receive_response_headers %s", issued)
            assert secrets.cleaned({token: [f"<{token}>"]}) == {"***": ["<***>"]}
    assert "receive_response_headers ['***', '***']" in caplog.text
    assert not [token for token in issued if token in caplog.text]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "export API_KEY=sk-12345678; exec server"],
        ["-c", "exec env 'API_KEY=sk-12345678' server"],
        ["-c", "sh -c 'API_KEY=sk-12345678 server'"],
        ["-c", "server --api-key sk-12345678 && true"],
        ["-c", "it's open API_KEY=sk-12345678 x"],
        ["-H", "Authorization: Bearer sk-12345678"],
        ["-H", "X-Api-Key: sk-12345678"],
        ["-c", "curl -H 'Authorization: Bearer sk-12345678' host"],
    ],
)
def test_u19_secrets_in_scripts_and_headers_are_blanked(arguments: list[str]) -> None:
    shown = Secrets.of(secret_arguments(arguments)).scrubbed(" ".join(arguments))
    assert "sk-12345678" not in shown
    assert shown.split()[0] == arguments[0]


def test_u19_a_script_without_secrets_stays_readable() -> None:
    script = "import os; print({'key': 1}); os.execvp('server', ['server', '--verbose'])"
    assert Secrets.of(secret_arguments(["-c", script])).scrubbed(script) == script


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "Bearer "])
@pytest.mark.parametrize("after", ["", "x", "xy", ":pass", "/?>"])
@pytest.mark.parametrize("secret", ["s3cret-t0ken", "s3cret-t0ken~1", "a?>?>?>?secret/+"])
def test_u118_a_secret_is_blanked_in_base64_and_hex_too(secret: str, before: str, after: str) -> None:
    secrets = Secrets.of([secret])
    whole = f"{before}{secret}{after}".encode()
    for encoded in (base64.b64encode(whole), base64.urlsafe_b64encode(whole)):
        shown = secrets.scrubbed(f"failed with {encoded.decode()}")
        hidden = base64.b64encode(secret.encode()).decode().rstrip("=")[:-2]
        assert (
            "***" in shown and hidden not in shown and len(shown) < len("failed with ") + len(before) * 2 + 20
        )
    assert secrets.scrubbed(whole.hex()) == f"{before.encode().hex()}***{after.encode().hex()}"


SPELT = {
    "JSON of PHP": "s3c\\/ret+t0k=en",
    "JSON of .NET": "s3c/ret\\u002Bt0k=en",
    "JSON of Go": "s3c/ret+t0k\\u003den",
    "JSON in JSON": "s3c\\\\/ret\\\\u002bt0k=en",
    "HTML": "s3c&#x2F;ret&#43;t0k&#61;en",
    "a URL of .NET": "s3c%2fret%2bt0k%3den",
    "a URL": "s3c%2Fret%2Bt0k%3Den",
}


@pytest.mark.parametrize("spelt", SPELT)
def test_u78_a_secret_is_blanked_as_programs_spell_it_in_errors(spelt: str) -> None:
    shown = Secrets.of(["s3c/ret+t0k=en"]).scrubbed(f'bad token "{SPELT[spelt]}"!')
    assert shown == 'bad token "***"!'
    assert Secrets.of(["a&b<c>d'efgh"]).scrubbed("x a&amp;b&lt;c&gt;d&#x27;efgh") == "x ***"


@pytest.mark.parametrize(
    "secret", ["\\" * 9 + "y", "/" * 9 + "y", "\\/" * 9 + "y", "%25" * 9 + "y", "&amp;" * 9 + "y"]
)
@pytest.mark.parametrize("sign", ["\\", "/", "\\/", "%25", "&amp;", "&#0", "&#x5c;"])
def test_u78_no_text_of_a_server_takes_long_to_be_searched_for_secrets(secret: str, sign: str) -> None:
    # What is tried in several ways at each place does not end.
    assert Secrets.of([secret]).scrubbed(sign * 2000) == sign * 2000
