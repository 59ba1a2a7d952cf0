"""The table from exceptions to JSON-RPC errors, as clients of both eras see it."""

from __future__ import annotations

import logging
from typing import Any

import mcp_types as types
import pytest
from mcp.server.runner import modern_error_data
from mcp.shared.exceptions import MCPError as SdkError
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import ValidationError

from mcp_toolset import ToolsetError
from mcp_toolset.errors import (
    CallError,
    ClientCapabilityError,
    GrantStoreError,
    InvalidOutputError,
    RequestStateError,
    ToolNotReadyError,
    UnknownToolError,
    UpstreamProtocolError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.json_rpc import ROWS, MCPError, error_for_peer, error_of, in_era, refusal

URI = "memo://one"
RESOURCE_NOT_FOUND = -32002


def _invalid() -> ValidationError:
    try:
        types.CallToolRequestParams.model_validate({"name": 7})
    except ValidationError as fault:
        return fault
    raise AssertionError


@pytest.mark.parametrize(
    ("raised", "code", "message", "data"),
    [
        (UnknownToolError("x"), -32602, "Unknown tool: x", None),
        (ToolNotReadyError("x", "s is starting"), -32602, "x is not available: s is starting", None),
        (RequestStateError("its state has ended"), -32602, "its state has ended", None),
        (CallError("too many"), -32602, "too many", None),
        (InvalidOutputError("not an object"), -32603, "not an object", None),
        (UpstreamProtocolError("s", -32055, "no", {"a": 1}), -32055, "s: no", {"a": 1}),
        (UpstreamUnavailableError("s", "it is down"), -32603, "s: it is down", None),
        (GrantStoreError("locked"), -32603, "locked", None),
        (
            ClientCapabilityError("sampling"),
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "this needs a client that declares sampling, and this one does not",
            {"requiredCapabilities": {"sampling": {}}},
        ),
    ],
)
def test_an_exception_of_the_package_has_one_error(
    raised: ToolsetError, code: int, message: str, data: Any
) -> None:
    error = refusal(raised)
    assert (error.code, error.message, error.data) == (code, message, data)


def test_what_is_not_found_is_told_without_quotes_and_with_its_resource() -> None:
    error = error_of(KeyError("no such prompt"))
    assert error is not None
    assert (error.code, error.message, error.data) == (-32602, "no such prompt", None)
    error = error_of(LookupError(), uri=URI)
    assert error is not None
    assert (error.code, error.message, error.data) == (-32602, "Not found", {"uri": URI})


@pytest.mark.parametrize("raised", [ValueError("secret"), OSError("secret"), _invalid()])
def test_what_nobody_expected_is_in_no_row(raised: Exception) -> None:
    assert error_of(raised) is None


def test_a_row_is_not_hidden_by_an_earlier_one() -> None:
    kinds = [kind for kind, *_ in ROWS]
    for place, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:place]), kind


@pytest.mark.parametrize(
    ("raised", "uri", "legacy", "modern"),
    [
        (LookupError("gone"), URI, RESOURCE_NOT_FOUND, -32602),
        (LookupError("gone"), None, -32602, -32602),
        (UpstreamProtocolError("s", RESOURCE_NOT_FOUND, "gone"), URI, RESOURCE_NOT_FOUND, -32602),
        (UpstreamProtocolError("s", -32602, "gone", {"uri": URI}), URI, RESOURCE_NOT_FOUND, -32602),
        (UpstreamProtocolError("s", -32602, "gone", {"uri": URI}), None, -32602, -32602),
        (UpstreamProtocolError("s", -32602, "bad", {"name": "x"}), URI, -32602, -32602),
        (CallError("too many"), URI, -32602, -32602),
        (UpstreamUnavailableError("s", "down"), URI, -32603, -32603),
    ],
)
def test_a_missing_resource_has_the_code_of_the_era(
    raised: Exception, uri: str | None, legacy: int, modern: int
) -> None:
    error = error_of(raised, uri=uri)
    assert error is not None
    for era, code in ((False, legacy), (True, modern)):
        told = in_era(error, modern=era, about_resource=uri is not None)
        assert (told.code, told.message, told.data) == (code, error.message, error.data)


@pytest.mark.parametrize(
    "raised",
    [
        SdkError(-32055, "no", {"a": 1}),
        SdkError(-32055, "no"),
        UrlElicitationRequiredError([]),
        _invalid(),
        ValueError("secret"),
        CallError("x"),
    ],
)
def test_what_leaves_a_handler_is_told_as_the_sdk_tells_it(
    raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="mcp_toolset.wire"):
        told = error_for_peer(raised)
    assert told.to_wire() == modern_error_data(raised).model_dump(exclude_none=True)
    logged = [record for record in caplog.records if record.name == "mcp_toolset.wire"]
    assert bool(logged) == (not isinstance(raised, SdkError | ValidationError))
    assert "secret" not in told.message


def test_an_error_of_the_bridge_is_told_as_it_is() -> None:
    told = error_for_peer(MCPError(-32055, "no", [1])).to_wire()
    assert told == {"code": -32055, "message": "no", "data": [1]}
