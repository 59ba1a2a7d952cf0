"""A person with a browser, who logs in to a mounted server by the page that a call has named."""

from __future__ import annotations

import re
from typing import Final

import httpx2

PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+/oauth/login/[\w-]+")
_CONTINUE: Final = re.compile(r'href="(\?continue=\w+)"')


async def logs_in(page: str, user: str) -> bool:
    """Read the page, agree, and log in as `user`; whether that went well."""
    async with httpx2.AsyncClient(timeout=60) as browser:
        answer = await browser.get(page)
        proof = _CONTINUE.search(answer.text)
        if proof is None:
            return False
        answer = await browser.get(page + proof[1])
        if answer.status_code != 303:
            return False
        there = f"{answer.headers['location']}&login_hint={user}"
        while "/oauth/callback" not in there:
            answer = await browser.get(there)
            there = str(answer.url.join(answer.headers["location"]))
        return "You are logged in" in (await browser.get(there)).text
