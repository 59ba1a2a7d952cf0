"""Three replicas and one mounted server that must be single; its owner is killed again and again.

`scripts/suspended --single` runs it. Prints how long no replica answered, and if two servers ran at once.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import httpx
from tests.replicas.suspended import MODERN, ROOT, Caller, Replicas
from tests.support.valkey import valkey_process

KILLS = 3


async def called(caller: Caller, url: str) -> dict[str, int] | str:
    """The count and the process that has counted, or what is said instead."""
    told = await caller.call(url, "counter_add_one", {})
    if told.get("isError") or "content" not in told:
        return told.get("message") or told["content"][0]["text"]
    return told["structuredContent"]


async def main() -> None:
    with valkey_process() as store, TemporaryDirectory() as made:
        folder = Path(made)
        url = f"{store.url}?namespace=single"
        server = [str(ROOT / "tests/support/counting.py"), str(folder / "starts")]
        entry = {"command": sys.executable, "args": server, "single": True}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"counter": entry}}))
        three = Replicas(folder / "mcp.json", url, folder / "effects", folder / "log")
        try:
            async with httpx.AsyncClient(timeout=60) as http:
                await three.ready()
                caller = Caller(http, MODERN)
                living = list(range(3))
                for kill in range(KILLS):
                    seen = [await called(caller, f"http://127.0.0.1:{three.ports[n]}/mcp") for n in living]
                    print(f"{len(living)} replicas: {seen}")
                    if kill == KILLS - 1:
                        break
                    process = next(each["pid"] for each in seen if isinstance(each, dict))
                    owner = parent_of(process)
                    gone = next(n for n in living if three.processes[n].pid == owner)
                    living.remove(gone)
                    three.processes[gone].send_signal(signal.SIGKILL)
                    killed = time.monotonic()
                    three.processes[gone].wait()
                    await recovered(caller, [three.ports[n] for n in living], killed)
        finally:
            three.kill()
        starts = (folder / "starts").read_text().split()
        twice = [each for each in starts if each.startswith("beside")]
        print(f"{len(starts) - len(twice)} starts, {len(twice)} beside another one")
        if twice:
            raise SystemExit("two servers ran at a time")


def parent_of(process: int) -> int:
    """The replica that has started a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


async def recovered(caller: Caller, ports: list[int], killed: float) -> None:
    said: set[str] = set()
    with anyio.fail_after(60):
        for port in ports:
            while isinstance(told := await called(caller, f"http://127.0.0.1:{port}/mcp"), str):
                if told not in said:
                    print(f"  after {time.monotonic() - killed:.1f} s: {told}")
                said.add(told)
                await anyio.sleep(0.1)
            print(f"  after {time.monotonic() - killed:.1f} s: {told}")


if __name__ == "__main__":
    anyio.run(main)
