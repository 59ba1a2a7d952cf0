"""What a user, an operator or an attacker does in one step, and the run of many such steps at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import anyio
import anyio.to_thread
from tests.identities.doors import Answer, Door, LegacyHttp, Sse
from tests.identities.world import LIFETIME, User, World

AT_ONCE: Final = 5
"""Steps that may overlap."""


class Step:
    """One step: a user at a client, and a source of chance of its own."""

    def __init__(self, world: World, user: User, door: Door, chance: Random) -> None:
        self.world, self.user, self.door, self.chance = world, user, door, chance
        self.judge = world.judge

    @property
    def other(self) -> User:
        """Another user."""
        return self.chance.choice([one for one in self.world.users if one is not self.user])

    async def ask(self, method: str, **params: Any) -> Answer:
        """Ask, and count how that ended; a user whose token is refused gets a new one."""
        before = self.door.token
        answer = await self.door.ask(method, **params)
        if answer.status == 401 and before == self.user.token:
            await self.world.renew(self.user)
        return answer

    def mine(self, kind: str, answer: Answer, expected: str) -> str:
        """How an answer ended, which is this user's own if it is good."""
        if not answer.is_good:
            return f"status {answer.status}" if answer.status not in (0, 200) else "refused"
        if expected not in answer.raw:
            self.judge.crossing(
                kind, f"{expected} is not in what belongs to {self.user.mark}: {answer.raw[:300]}"
            )
        return "good"

    async def list(self) -> str:
        return self.mine("list", await self.ask("tools/list"), "whoami")

    async def whoami(self) -> str:
        note = f"n{self.chance.randrange(5)}"
        answer = await self.ask("tools/call", name="whoami", arguments={"note": note})
        return self.mine("result", answer, f"{self.user.mark} notes {note}")

    async def shared(self) -> str:
        note = f"{self.user.mark}.{self.chance.randrange(1 << 30)}"
        answer = await self.ask("tools/call", name="shared_note", arguments={"note": note})
        return self.mine("result", answer, note)

    async def search(self) -> str:
        query = self.chance.choice(["diary", "ledger", "note of the caller", self.other.mark])
        answer = await self.ask("tools/call", name="search_tools", arguments={"query": query})
        return self.mine("search", answer, "structuredContent")

    async def resolve(self) -> str:
        names = self.chance.sample(["diary", "ledger"], self.chance.randint(1, 2))
        answer = await self.ask("tools/call", name="resolve_tools", arguments={"ids": names})
        for one in ((answer.result or {}).get("structuredContent") or {}).get("tools", ()):
            if one["grant"]:
                self.user.grants[one["id"]] = self.judge.own(self.user.mark, one["grant"])
        return self.mine("resolve", answer, "grant")

    async def use(self) -> str:
        """Call a deferred tool by a grant of its own."""
        if not self.user.grants:
            return await self.resolve()
        return await self._used(self.chance.choice(list(self.user.grants.values())))

    async def take_grant(self) -> str:
        """Call a deferred tool by a grant of another user, which is none for this one."""
        if not self.other.grants:
            return "nothing to take"
        theirs = self.chance.choice(
            [grant for user in self.world.users if user is not self.user for grant in user.grants.values()]
        )
        outcome = await self._used(theirs)
        if outcome == "good":
            self.judge.crossing("grant", f"{self.user.mark} used a grant of another user")
        return outcome

    async def _used(self, grant: str) -> str:
        note = f"n{self.chance.randrange(5)}"
        answer = await self.ask(
            "tools/call", name="call_tool", arguments={"grant": grant, "arguments": {"note": note}}
        )
        return self.mine("result", answer, f"{self.user.mark} notes {note}")

    async def resources(self) -> str:
        return self.mine("resources", await self.ask("resources/list"), "resources")

    async def listen(self) -> str:
        await self.door.listen()
        return "good"

    async def take_session(self) -> str:
        """Ask in the session of another user."""
        theirs = self.other.doors[next(name for name, each in self.user.doors.items() if each is self.door)]
        match self.door, theirs:
            case LegacyHttp(), LegacyHttp() if theirs.session:
                answer = await self.door.post_in(theirs.session, "tools/list", {})
            case Sse(), Sse() if theirs.session:
                answer = await self.door.post_to(theirs.session, "tools/list", {})
            case _:
                return "nothing to take"
        if answer.status not in (401, 404):
            self.judge.crossing("session", f"the session of another user answered with {answer.status}")
        return f"status {answer.status}"

    async def revoke(self) -> str:
        """Revoke the token of a user: it is refused from now on."""
        self.world.auth.revoke(self.user.token)
        return "done"

    async def expire(self) -> str:
        """Have all tokens expire."""
        self.world.clock.ahead += LIFETIME + 100
        await self._set("ttl", self.world.clock.ahead + LIFETIME)
        return "done"

    async def rotate(self) -> str:
        """Sign with the other key from now on; both are published."""
        self.world.signing = "k2" if self.world.signing == "k1" else "k1"
        await self._set("signing", self.world.signing)
        return "done"

    async def _set(self, name: str, value: str | int) -> None:
        await anyio.to_thread.run_sync(self.world.issuing.set, name, value)


WEIGHTS: Final[dict[Callable[[Step], Awaitable[str]], int]] = {
    Step.list: 20,
    Step.whoami: 25,
    Step.shared: 20,
    Step.search: 10,
    Step.resolve: 6,
    Step.use: 12,
    Step.take_grant: 6,
    Step.resources: 6,
    Step.listen: 3,
    Step.take_session: 8,
    Step.revoke: 2,
    Step.expire: 1,
    Step.rotate: 1,
}


async def run(world: World, steps: int, *, until_crossing: bool = False) -> None:
    """Take so many steps, several at once; each client takes one at a time."""
    left = steps
    while left and not (until_crossing and world.judge.crossings):
        at_once = min(left, world.random.randint(1, AT_ONCE))
        left -= at_once
        clients = [(user, door) for user in world.users for door in user.doors.values()]
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                for user, door in world.random.sample(clients, at_once):
                    chance = Random(world.random.random())
                    group.start_soon(_take, Step(world, user, door, chance))
        if world.random.random() < 0.02:
            world.scan()
    world.scan()


async def _take(step: Step) -> None:
    action = step.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    outcome = await action(step)
    step.judge.counts[f"step {action.__name__}, {outcome}"] += 1
