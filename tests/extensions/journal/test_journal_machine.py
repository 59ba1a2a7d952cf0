"""Any order of calls, repeats, ends, crashes and settlements: no unit of work has its effect twice."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mcp_toolset.extensions.journal.journal_store import Intent, JournalStore, Outcome

KEYS: tuple[str, ...] = ("a" * 64, "b" * 64)
PROCESSES = st.integers(0, 2)


def intent(id: str) -> Intent:
    return Intent(id, "f", "", "", "", "pay", "{}", "client")


class Machine(RuleBasedStateMachine):
    """Three processes with one journal, and what each call stands at by the rules of the protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "j"
        self.journals = [self.opened() for _ in range(3)]
        self.expected: dict[str, tuple[str, int, int]] = {}
        self.effects: dict[str, int] = dict.fromkeys(map(str, KEYS), 0)

    def opened(self) -> JournalStore:
        journal = JournalStore(self.path)
        self.runner.run(journal.__aenter__())
        return journal

    @rule(key=st.sampled_from(KEYS), process=PROCESSES, effect=st.booleans())
    def begin(self, key: str, process: int, effect: bool) -> None:
        found = self.runner.run(self.journals[process].begin(intent(key)))
        if key not in self.expected:
            assert found is None
            self.expected[key] = ("running", process, 1)
            self.effects[key] += effect
        else:
            state, _, attempt = self.expected[key]
            assert found is not None
            assert (found.standing, found.record.attempt) == (state, attempt)

    @rule(key=st.sampled_from(KEYS), state=st.sampled_from(["done", "unknown", "asked"]), old=st.booleans())
    def end(self, key: str, state: str, old: bool) -> None:
        standing, process, attempt = self.expected.get(key, ("", 0, 1))
        if old and attempt > 1:
            self.runner.run(self.journals[process].end(key, attempt - 1, Outcome("done", b"old")))
        elif standing == "running":
            self.runner.run(self.journals[process].end(key, attempt, Outcome(state)))  # pyright: ignore[reportArgumentType]
            self.expected[key] = (state, process, attempt)

    @rule(key=st.sampled_from(KEYS))
    def release(self, key: str) -> None:
        standing, process, attempt = self.expected.get(key, ("", 0, 1))
        if standing == "running" and attempt == 1 and not self.effects[key]:
            self.runner.run(self.journals[process].release(key, attempt))
            del self.expected[key]

    @rule(process=PROCESSES)
    def crash(self, process: int) -> None:
        """A process ends without a word; another takes its place."""
        self.runner.run(self.journals[process].__aexit__(None, None, None))
        self.journals[process] = self.opened()
        for key, (standing, owner, attempt) in self.expected.items():
            if standing == "running" and owner == process:
                self.expected[key] = ("unknown", owner, attempt)

    @rule(key=st.sampled_from(KEYS), processes=st.permutations(range(3)))
    def take_over(self, key: str, processes: list[int]) -> None:
        standing, _, attempt = self.expected.get(key, ("", 0, 1))
        if standing != "asked":
            return
        won: list[int] = []

        async def one(process: int) -> None:
            if await self.journals[process].take_over(intent(key), attempt):
                won.append(process)

        async def every() -> None:
            async with anyio.create_task_group() as group:
                for process in processes:
                    group.start_soon(one, process)

        self.runner.run(every())
        assert len(won) == 1
        self.expected[key] = ("running", won[0], attempt + 1)

    @rule(key=st.sampled_from(KEYS), process=PROCESSES, note=st.none() | st.just("sent"))
    def settle(self, key: str, process: int, note: str | None) -> None:
        if note is None and self.effects[key]:
            return  # a call that has happened is not settled otherwise
        standing, owner, attempt = self.expected.get(key, ("running", 0, 1))
        settled = self.runner.run(self.journals[process].settle(key, note))
        assert settled is (standing != "running")
        if settled and note is None:
            del self.expected[key]
        elif settled:
            self.expected[key] = ("done", owner, attempt)

    @invariant()
    def no_effect_twice(self) -> None:
        assert max(self.effects.values()) <= 1

    def teardown(self) -> None:
        for journal in self.journals:
            self.runner.run(journal.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()


TestJ1NoOrderOfEventsHasAnEffectTwice = Machine.TestCase
TestJ1NoOrderOfEventsHasAnEffectTwice.settings = settings(max_examples=25, stateful_step_count=25)
