"""Addresses of stores, and what stores answer, do not show the password."""

from __future__ import annotations

import logging

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from mcp_toolset.errors import ConfigError, StoreError
from mcp_toolset.journal import JournalGuard
from mcp_toolset.stores.redis import StoreConnection

PASSWORD = "hunter2Secret"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{PASSWORD}/x@host:6379",
        f"redis://user:{PASSWORD}#x@host",
        f"redis://user:a:{PASSWORD}@host:{PASSWORD}",
        f"redis://:{PASSWORD}[x@host:6379",
        f"redis://host?namespace=:{PASSWORD}@",
    ],
)
def test_u78_the_url_of_a_store_that_cannot_be_read_is_not_quoted(url: str):
    for make in (StoreConnection, JournalGuard):
        with pytest.raises(ConfigError) as told:
            make(url)
        assert "hunter2" not in str(told.value)


@pytest.mark.parametrize("address", ["u:{}%zz@127.0.0.1:1/db", "127.0.0.1:1/db?{}=1", "u:{}[@127.0.0.1:1/db"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_u78_the_address_of_a_journal_that_cannot_be_read_is_not_quoted(
    address: str, anyio_backend: str
):
    pytest.importorskip("psycopg")
    with anyio.fail_after(30), pytest.raises(StoreError) as told:
        async with JournalGuard(f"postgresql://{address.format(PASSWORD)}"):
            pass
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    "answer", [b"-ERR unknown command, with args: ", b"-WRONGPASS ", b"?", b"HTTP/1.1 400 "]
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_u78_a_store_that_repeats_the_password_does_not_bring_it_into_status_or_log(
    answer: bytes, anyio_backend: str, caplog: pytest.LogCaptureFixture
):
    async def answered(stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(30):
                async for sent in stream:
                    await stream.send(answer + sent.replace(b"\r\n", b" ") + b"\r\n")

    caplog.set_level(logging.DEBUG)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, answered)
        port = listener.extra(SocketAttribute.local_port)
        store = StoreConnection(f"redis://default:{PASSWORD}@127.0.0.1:{port}/0")
        with anyio.fail_after(30), pytest.raises(StoreError) as told:
            await store.run("PING", to="answer")
        await store.aclose()
        group.cancel_scope.cancel()
    assert store.health.state != "ready" and "***" in store.health.reason
    assert "hunter2" not in f"{told.value} {store.health} {caplog.text}"
