"""How long a question lasts whose call cannot be told from others of its client (F26, P5)."""

from __future__ import annotations

import anyio
import pytest

from mcp_toolset.tools.call import LOCAL_CONTEXT
from mcp_toolset.upstream.in_flight import CallInFlight, CallsInFlight

pytestmark = pytest.mark.anyio


class Question:
    """Asks in the course of a call until that is cut short; it takes a while to be withdrawn."""

    def __init__(self) -> None:
        self.asked, self.cut, self.told = anyio.Event(), anyio.Event(), anyio.Event()

    async def ask(self, call: CallInFlight, *, exact: bool) -> None:
        with call.asking(exact=exact):
            self.asked.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.cut.set()
                with anyio.CancelScope(shield=True):
                    await anyio.wait_all_tasks_blocked()
                self.told.set()


@pytest.mark.parametrize("exact", [True, False])
async def test_f26_p5_a_question_lasts_as_long_as_a_call_that_may_have_asked_it(exact: bool) -> None:
    calls, question = CallsInFlight(), Question()
    older, newer = CallInFlight(LOCAL_CONTEXT, client="one"), CallInFlight(LOCAL_CONTEXT, client="one")
    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            with calls.of(older):
                with calls.of(newer):
                    group.start_soon(lambda: question.ask(newer, exact=exact))
                    await question.asked.wait()
                await newer.withdrawn()
                assert question.told.is_set() == exact
            await older.withdrawn()
            assert question.told.is_set()


async def test_f26_a_call_waits_until_its_client_has_been_told_even_when_it_is_cancelled() -> None:
    calls, question = CallsInFlight(), Question()
    call = CallInFlight(LOCAL_CONTEXT)
    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as caller, calls.of(call):
                group.start_soon(lambda: question.ask(call, exact=False))
                await question.asked.wait()
                caller.cancel()
            caller = anyio.CancelScope()
            with caller:
                caller.cancel()
                await call.withdrawn()
                assert question.told.is_set()
            assert not calls.asking
