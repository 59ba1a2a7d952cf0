"""What a user, an operator or an attacker does in one step, and the run of many such steps at once."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import anyio
import anyio.to_thread
from tests.identities.browser import PAGE, logs_in
from tests.identities.doors import Answer, Door, LegacyHttp, Sse
from tests.identities.world import DENIABLE, LIFETIME, User, World

_DIFFERING: Final = re.compile(
    r'"id":\d+,|did you mean [^?]*\?|use the id of a search hit|Next: (resolve|search)_tools \{[^}]*\}'
)

AT_ONCE: Final = 5
"""Steps that may overlap."""


def _plain(raw: str, mark: str) -> str:
    """An answer without what may differ between two: its id, the asked name, the user's own tools like it."""
    return _DIFFERING.sub("", raw).replace(mark, "…")


class Step:
    """One step: a user at a client, and a source of chance of its own."""

    def __init__(self, world: World, user: User, door: Door, chance: Random) -> None:
        self.world, self.user, self.door, self.chance = world, user, door, chance
        self.judge = world.judge
        self.was_denied = False

    @property
    def other(self) -> User:
        """Another user."""
        return self.chance.choice([one for one in self.world.users if one is not self.user])

    async def ask(self, method: str, **params: Any) -> Answer:
        """Ask, and count how that ended; a user whose token is refused gets a new one."""
        before, moment = self.door.token, self.world.moment()
        answer = await self.door.ask(method, **params)
        self.was_denied = self.user.mark == self.world.denied and moment == self.world.moment() is not None
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
        answer = await self.ask("tools/list")
        if self.was_denied and f'"name":"{DENIABLE}"' in answer.raw:
            self.judge.crossing("policy", f"a denied tool was listed: {answer.raw[:300]}")
        return self.mine("list", answer, "whoami")

    async def whoami(self) -> str:
        note = f"n{self.chance.randrange(5)}"
        answer = await self.ask("tools/call", name="whoami", arguments={"note": note})
        return self.mine("result", answer, f"{self.user.mark} notes {note}")

    async def shared(self) -> str:
        note = f"{self.user.mark}.{self.chance.randrange(1 << 30)}"
        answer = await self.ask("tools/call", name="shared_note", arguments={"note": note})
        return self.mine("result", answer, note)

    async def exchange(self) -> str:
        """Call a server by a token that was got in exchange for the caller's."""
        note = f"n{self.chance.randrange(5)}"
        answer = await self.ask("tools/call", name="exchange_note", arguments={"note": note})
        return self.mine("result", answer, f'\\"caller\\": \\"{self.user.mark}\\"')

    async def exchange_own(self) -> str:
        """Call a tool that the server lists to this user alone."""
        name = f"exchange_of_{self.user.mark}"
        answer = await self.ask("tools/call", name=name, arguments={})
        return self.mine("result", answer, f'\\"caller\\": \\"{self.user.mark}\\"')

    async def desk(self) -> str:
        """Call a server that the user logs in to, and log in first if that is needed."""
        note = f"n{self.chance.randrange(5)}"
        answer = await self.ask("tools/call", name="desk_note", arguments={"note": note})
        if answer.is_good or answer.status == 401:
            return self.mine("result", answer, f'\\"caller\\": \\"{self.user.mark}\\"')
        return await self.login()

    async def desk_own(self) -> str:
        """Call a tool that this server lists to this user alone."""
        answer = await self.ask("tools/call", name=f"desk_of_{self.user.mark}", arguments={})
        return self.mine("result", answer, f'\\"caller\\": \\"{self.user.mark}\\"')

    async def login(self) -> str:
        """Log in by the page that a call names."""
        page = PAGE.search((await self.ask("tools/call", name="log_in", arguments={})).text)
        if page is None:
            return "no page"
        return "logged in" if await logs_in(page[0], self.user.mark) else "begun elsewhere"

    async def logout(self) -> str:
        """Remove the tokens of the user."""
        for key in await self.world.store.list():
            if self.user.mark in key.user:
                await self.world.store.remove(key)
        return "done"

    async def search(self) -> str:
        query = self.chance.choice(["diary", "ledger", "note of the caller", self.other.mark])
        answer = await self.ask("tools/call", name="search_tools", arguments={"query": query})
        if self.was_denied and f'"id":"{DENIABLE}"' in answer.raw:
            self.judge.crossing("policy", f"a denied tool was found: {answer.raw[:300]}")
        return self.mine("search", answer, "structuredContent")

    async def resolve(self) -> str:
        names = self.chance.sample(["diary", "ledger"], self.chance.randint(1, 2))
        answer = await self.ask("tools/call", name="resolve_tools", arguments={"ids": names})
        for one in ((answer.result or {}).get("structuredContent") or {}).get("tools", ()):
            if one.get("grant"):
                if self.was_denied and one["id"] == DENIABLE:
                    self.judge.crossing("policy", "a denied tool was granted")
                self.user.grants[one["id"]] = self.judge.own(self.user.mark, one["grant"])
        return self.mine("resolve", answer, "tools")

    async def use(self) -> str:
        """Call a deferred tool by a grant of its own."""
        if not self.user.grants:
            return await self.resolve()
        name, grant = self.chance.choice(list(self.user.grants.items()))
        outcome = await self._used(grant)
        if outcome == "good" and self.was_denied and name == DENIABLE:
            self.judge.crossing("policy", "a denied tool was called by a grant of before")
        return f"{outcome}{', as it is denied' if self.was_denied and name == DENIABLE else ''}"

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

    async def private(self) -> str:
        answer = await self.ask("tools/call", name=self.user.private[0], arguments={})
        return self.mine("result", answer, f"{self.user.mark} notes alone")

    async def guess(self) -> str:
        """Ask for a tool of another user, which has to look like one that does not exist."""
        mark = self.other.mark
        ways: list[Callable[[str], dict[str, Any]]] = [
            lambda mark: {"name": f"only_{mark}", "arguments": {}},
            lambda mark: {"name": f"secret_{mark}", "arguments": {}},
            lambda mark: {"name": f"exchange_of_{mark}", "arguments": {}},
            lambda mark: {"name": f"desk_of_{mark}", "arguments": {}},
            lambda mark: {"name": "resolve_tools", "arguments": {"ids": [f"secret_{mark}"]}},
            lambda mark: {"name": "call_tool", "arguments": {"grant": f"secret_{mark}"}},
        ]
        way, nobody = self.chance.choice(ways), "x" * len(mark)
        met = [await self.ask("tools/call", **way(each)) for each in (mark, nobody)]
        if 401 in (met[0].status, met[1].status) or 0 in (met[0].status, met[1].status):
            return "interrupted"
        told = [_plain(answer.raw, each) for answer, each in zip(met, (mark, nobody), strict=True)]
        if told[0] != told[1]:
            self.judge.crossing("guess", f"{told[0][:400]} is told apart from {told[1][:400]}")
        return "answered alike"

    async def reload(self) -> str:
        """Change the policy: one user is denied a tool, another one is allowed it again."""
        await self.world.deny(self.chance.choice(self.world.users))
        return "done"

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
    Step.exchange: 15,
    Step.exchange_own: 8,
    Step.desk: 15,
    Step.desk_own: 8,
    Step.logout: 2,
    Step.search: 10,
    Step.resolve: 6,
    Step.use: 12,
    Step.take_grant: 6,
    Step.private: 6,
    Step.guess: 10,
    Step.reload: 2,
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
            await world.scan()
    await world.scan()


async def _take(step: Step) -> None:
    action = step.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    outcome = await action(step)
    step.judge.counts[f"step {action.__name__}, {outcome}"] += 1
