"""A server of skills on standard input and output, of either era: `skill_server.py ERA NAME`.

Plain Python, no SDK. Its skills have the same addresses at every server. The list has two pages, and
hostile entries with `--odd`. With `--decodes` it decodes
addresses, and has templates, values for them and subscriptions.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any
from urllib.parse import unquote

MODERN = "2026-07-28"
URI = "skill://refunds/SKILL.md"
MORE = "skill://refunds/policy/limits.md"
SECOND = "skill://team/tidy/SKILL.md"


def text_of(uri: str, name: str) -> str:
    if uri == MORE:
        return f"Limits of {name}.\n"
    skill = uri.split("/")[-2]
    said = f"name: {skill}\ndescription: How {name} does {skill}.\nlicense: MIT"
    return f"---\n{said}\n---\nDo it as {name} does.\n"


def listed(uri: str, name: str) -> dict[str, Any]:
    content = text_of(uri, name).encode()
    return {"uri": uri, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def entry(uri: str, name: str) -> dict[str, Any]:
    skill = uri.split("/")[-2]
    said = {"name": skill, "description": f"How {name} does {skill}.", "license": "MIT"}
    files = [listed(URI, name), listed(MORE, name)] if uri == URI else [listed(uri, name)]
    return {"uri": uri, "frontmatter": said, "resources": files, "x-own": 1}


def odd(name: str) -> list[Any]:
    good = entry(URI, name)
    many = [listed(URI, name), *({**listed(MORE, name), "uri": f"skill://refunds/{n}"} for n in range(512))]
    large = [listed(URI, name), {**listed(MORE, name), "size": 16 * 1024 * 1024}]
    outside = [listed(URI, name), {**listed(MORE, name), "uri": "skill://other/file"}]
    above = [listed(URI, name), {**listed(MORE, name), "uri": "skill://refunds/../other/file"}]
    hidden = {**good["frontmatter"], "description": "Plain\u200b\U000e0041 words"}
    return [
        7,
        {**good, "resources": many},
        {**good, "resources": large},
        {**good, "resources": outside},
        {**good, "resources": above},
        {**good, "resources": [listed(MORE, name)]},
        {**good, "resources": [{**listed(URI, name), "digest": "sha256:0"}]},
        {**good, "resources": [listed(URI, name), listed(URI, name)]},
        {**good, "resources": None},
        {**good, "frontmatter": hidden},
        {**good, "frontmatter": {"name": "refunds"}},
        {**good, "frontmatter": {**good["frontmatter"], "name": "Other"}},
        {**good, "uri": "skill://refunds/other.md"},
    ]


class Server:
    def __init__(self, era: str, name: str, *, is_odd: bool, decodes: bool) -> None:
        self.modern, self.name, self.is_odd, self.decodes = era == "modern", name, is_odd, decodes

    def result(self, **result: Any) -> dict[str, Any]:
        if self.modern:
            result = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public", **result}
        return {"result": result}

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        extensions = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
        able: dict[str, Any] = {"tools": {}, "resources": {}, "extensions": extensions}
        if self.decodes:
            able |= {"resources": {"subscribe": True}, "completions": {}}
            params = {**params, "uri": unquote(unquote(params.get("uri", "")))}
        info = {"name": self.name, "version": "1"}
        answers: dict[str, Any] = {
            "server/discover": {"supportedVersions": [MODERN], "capabilities": able, "serverInfo": info},
            "initialize": {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": able,
                "serverInfo": info,
            },
            "tools/list": {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]},
            "resources/list": {"resources": []},
            "ping": {},
        }
        if self.decodes:
            templates = ["refunds/{file}", "r%65funds{/file}", "{skill}/{file}"]
            answers["resources/templates/list"] = {
                "resourceTemplates": [{"name": one, "uriTemplate": f"skill://{one}"} for one in templates]
            }
            answers["completion/complete"] = {"completion": {"values": ["limits.md"]}}
            answers["resources/subscribe"] = {}
        if method in answers and (method != "server/discover" or self.modern):
            return self.result(**answers[method])
        return self.about_skills(method, params, params.get("uri", ""))

    def about_skills(self, method: str, params: dict[str, Any], uri: str) -> dict[str, Any]:
        match method:
            case "skills/list" if self.is_odd:
                return self.result(skills=[*odd(self.name), entry(SECOND, self.name)])
            case "skills/list" if params.get("cursor") == "second":
                return self.result(skills=[entry(SECOND, self.name)])
            case "skills/list":
                return self.result(skills=[entry(URI, self.name)], nextCursor="second")
            case "skills/get" if uri in (URI, SECOND):
                return self.result(skill=entry(uri, self.name))
            case "resources/read" if uri in (URI, MORE, SECOND):
                content = {"uri": uri, "mimeType": "text/markdown", "text": text_of(uri, self.name)}
                return self.result(contents=[content])
            case "resources/directory/read" if uri == "skill://refunds":
                below = {"uri": "skill://refunds/policy", "name": "policy", "mimeType": "inode/directory"}
                return self.result(resources=[{"uri": URI, "name": "refunds"}, below])
            case "resources/read" | "skills/get" | "resources/directory/read":
                return {"error": {"code": -32602, "message": "nothing is there", "data": {"uri": uri}}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found", "data": method}}


def main() -> None:
    server = Server(sys.argv[1], sys.argv[2], is_odd="--odd" in sys.argv, decodes="--decodes" in sys.argv)
    for line in sys.stdin:
        message = json.loads(line)
        if (number := message.get("id")) is not None:
            answer = server.answer(message["method"], message.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **answer}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
