"""A scripted provider on loopback, which keeps what it was asked: a model cannot be had here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Calls = list[tuple[str, str, dict[str, Any]]]
"""Calls of one turn: id, name and arguments."""


@dataclass
class Endpoint:
    """A scripted provider on loopback, and what it was asked."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    paths: list[str] = field(default_factory=list[str])


@contextmanager
def scripted(script: Sequence[Calls | str]) -> Iterator[Endpoint]:
    """Answer each request with the next line of the script, in the form of the path that was asked."""
    made = Endpoint()

    class Scripted(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            made.paths.append(self.path)
            body = json.dumps(FORMS[self.path](script[len(made.asked) - 1])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield made
        finally:
            server.shutdown()
            thread.join(5)


def completion(said: Calls | str) -> dict[str, Any]:
    """As OpenAI's chat completions answer."""
    message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": None, "annotations": []}
    if not isinstance(said, str):
        made = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in said
        ]
        message |= {"content": None, "tool_calls": made}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def response(said: Calls | str) -> dict[str, Any]:
    """As OpenAI's Responses answer."""
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    if isinstance(said, str):
        text = {"type": "output_text", "text": said, "annotations": []}
        output = [
            {"type": "message", "id": "t", "role": "assistant", "status": "completed", "content": [text]}
        ]
    else:
        output = [reasoning] + [
            _searched(id, arguments)
            if name == "tool_search"
            else {"type": "function_call", "id": f"f{id}", "call_id": id, "name": name} | _text(arguments)
            for id, name, arguments in said
        ]
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed"}
    return {"id": "x", "object": "response", "created_at": 0, "model": "m", "output": output, **rest}


def _searched(id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A search that the client is to run."""
    search = {"type": "tool_search_call", "id": f"s{id}", "call_id": id, "execution": "client"}
    return {**search, "arguments": arguments, "status": "completed"}


def _text(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"arguments": json.dumps(arguments), "status": "completed"}


def message(said: Calls | str) -> dict[str, Any]:
    """As Anthropic's Messages answer."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "signed"}
    content: list[dict[str, Any]] = (
        [{"type": "text", "text": said, "citations": None}]
        if isinstance(said, str)
        else [thinking]
        + [{"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in said]
    )
    fields = {"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    reason = "end_turn" if isinstance(said, str) else "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {**fields, "content": content, "stop_reason": reason, "usage": usage}


FORMS = {"/v1/chat/completions": completion, "/v1/responses": response, "/v1/messages": message}
