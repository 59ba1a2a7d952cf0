"""A server that answers by OpenAPI documents, and refuses what does not fit them; for `openapi.py`.

Requests are checked by openapi-core (OpenAPI 3) and by jsonschema (Swagger 2.0), with no code of this
package. Run it with an interpreter that has openapi-core, starlette and uvicorn:
`python openapi_server.py PLAN PORT`.
"""

# The checks run in .venv, which is without openapi-core.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

import uvicorn
import yaml
from jsonschema import Draft4Validator
from openapi_core import Config, OpenAPI
from openapi_core.contrib.starlette import StarletteOpenAPIRequest
from openapi_documents import Raw
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

METHODS = ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH"]


class Checked:
    """One document."""

    def __init__(self, path: Path, server: str) -> None:
        text = path.read_text()
        said = json.loads(text) if text.lstrip()[:1] == "{" else yaml.load(text, yaml.CSafeLoader)
        said = json.loads(json.dumps(said, default=str))
        self.old = "swagger" in said
        self.said = said
        self.raw, self.last = Raw(path), cast("Any", None)
        self.templates = [
            (
                one,
                re.compile(
                    re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(one.partition("#")[0].partition("?")[0]))
                ),
            )
            for one in sorted(self.raw.said["paths"], key=lambda one: one.count("{"))
        ]
        if not self.old:
            said["servers"] = [{"url": server}]
            for item in said["paths"].values():
                item.pop("servers", None)
                for one in item.values():
                    if isinstance(one, dict):
                        one.pop("servers", None)
            self.api = OpenAPI.from_dict(said, config=Config(spec_validator_cls=None), base_uri=path.as_uri())

    async def answer(self, request: Request, path: str) -> Response:
        body = await request.body()
        if self.old:
            fault, got = self._old(request, path, body)
            return self._said(request, fault, got)
        try:
            result = self.api.unmarshal_request(StarletteOpenAPIRequest(request, body))
        except Exception as raised:
            causes = []
            one: BaseException | None = raised
            while one is not None:
                causes.append(f"{type(one).__name__}: {one}"[:300])
                causes += [str(each.message)[:300] for each in getattr(one, "schema_errors", ())][:3]
                one = one.__cause__
            return self._said(request, " | ".join(causes), {})
        found = result.parameters
        got = {place: dict(getattr(found, place)) for place in ("path", "query", "header", "cookie")}
        got["body"] = _json(body)
        return self._said(request, "", got)

    def _said(self, request: Request, fault: str, got: Any) -> Response:
        """The answer that the document has for a request; what came is kept for the benchmark."""
        self.last = {
            "refused": fault,
            "got": got,
            "raw": f"{request.scope['raw_path'].decode()}?{request.url.query}",
        }
        if fault:
            return JSONResponse({"refused": fault}, status_code=422)
        path = request.url.path.split("/", 2)[-1]
        template = next((one for one in self.templates if one[1].fullmatch("/" + path)), None)
        if template is None:
            return Response(status_code=204)
        item, base = self.raw.followed(self.raw.said["paths"][template[0]], self.raw.path)
        operation, base = self.raw.followed(item.get(request.method.lower(), {}), base)
        for status, one in sorted(operation.get("responses", {}).items()):
            if not status.startswith("2") and status != "default":
                continue
            answer, there = self.raw.followed(one, base)
            contents = answer.get("content", {"application/json": answer} if "schema" in answer else {})
            code = int(status) if status.isdecimal() else 200
            for media, said in contents.items():
                if "json" in media and code not in (204, 205):
                    return JSONResponse(self.raw.answer(said.get("schema", {}), there), status_code=code)
            return Response(status_code=code)
        return Response(status_code=204)

    def _old(self, request: Request, path: str, body: bytes) -> tuple[str, dict[str, Any]]:
        """The faults of a request against a document of Swagger 2.0, and the received values."""
        raw = request.scope["raw_path"].decode().split("?")[0]
        raw = raw[len(raw) - len(path) :] if raw.endswith(path) else "/" + raw.split("/", 2)[2]
        found = next(self._matching(raw, request.method.lower()), None)
        if found is None:
            return f"no path {request.method} {raw}", {}
        item, operation, values = found
        form = _form(request.headers.get("content-type", "").split(";")[0], body)
        places = {
            "path": values,
            "query": dict(request.query_params),
            "header": request.headers,
            "formData": form,
        }
        got: dict[str, Any] = {"path": {}, "query": {}, "header": {}, "cookie": {}, "body": _json(body)}
        for one in [*item.get("parameters", []), *operation.get("parameters", [])]:
            one = self._followed(one)
            place, name = one["in"], one["name"]
            if place == "body":
                if fault := self._fault_of_body(one, body):
                    return fault, {}
                continue
            if name not in places[place]:
                if one.get("required"):
                    return f"{place} {name} is missing", {}
                continue
            value = _typed(one, places[place][name])
            if one.get("type") != "file" and place != "formData" and (fault := self._fault(one, value)):
                return f"{place} {name}: {fault}", {}
            if place in got:
                got[place][name] = value
        return "", got

    def _fault_of_body(self, said: Any, body: bytes) -> str:
        if not body:
            return "no body" if said.get("required") else ""
        fault = self._fault(said["schema"], _json(body))
        return f"body: {fault}" if fault else ""

    def _matching(self, path: str, method: str) -> Any:
        for template in sorted(self.said["paths"], key=lambda one: one.count("{")):
            pattern = "/".join(
                "([^/]+)" if "{" in step and step[0] == "{" else re.escape(step)
                for step in template.split("/")
            )
            match = re.fullmatch(pattern, path)
            item = self.said["paths"][template]
            if match and method in item:
                yield (
                    item,
                    item[method],
                    dict(zip(re.findall(r"{([^}]+)}", template), map(unquote, match.groups()), strict=False)),
                )

    def _followed(self, value: Any) -> Any:
        while "$ref" in value:
            steps = value["$ref"].removeprefix("#/").split("/")
            value = self.said
            for step in steps:
                value = value[step.replace("~1", "/")]
        return value

    def _fault(self, schema: Any, value: Any) -> str:
        plain = {
            key: one
            for key, one in schema.items()
            if key not in ("required", "name", "in") or "in" not in schema
        }
        whole = {**plain, "definitions": self.said.get("definitions", {})}
        return "; ".join(
            f"{'/'.join(map(str, one.path))} {one.message}"[:200]
            for one in Draft4Validator(whole).iter_errors(value)
        )


def _form(media: str, body: bytes) -> dict[str, Any]:
    """The fields of a form; of a multipart one their names alone."""
    if media == "application/x-www-form-urlencoded":
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    if media == "multipart/form-data":
        return dict.fromkeys(re.findall(r'name="([^"]+)"', body.decode("utf-8", "replace")), "file")
    return {}


def _typed(said: Any, value: str) -> Any:
    kind = said.get("type")
    if kind == "array":
        joint = {"ssv": " ", "tsv": "\t", "pipes": "|"}.get(said.get("collectionFormat"), ",")
        return [_typed(said.get("items", {}), one) for one in value.split(joint)]
    try:
        return {"integer": int, "number": float, "boolean": {"true": True, "false": False}.__getitem__}.get(
            kind, str
        )(value)
    except (ValueError, KeyError):
        return value


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def main() -> None:
    plan, port = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    documents = {
        one["name"]: Checked(Path(one["path"]), f"http://127.0.0.1:{port}/{one['name']}") for one in plan
    }

    async def answer(request: Request) -> Response:
        name = request.url.path.split("/", 2)[1]
        if name == "last":
            found = [each for each in documents.values() if each.last is not None]
            last = found[0].last if found else None
            for each in found:
                each.last = None
            return Response(json.dumps(last, default=str), media_type="application/json")
        if name not in documents:
            return Response(status_code=404)
        return await documents[name].answer(request, "/" + request.url.path.split("/", 2)[-1])

    uvicorn.run(
        Starlette(routes=[Route("/{rest:path}", answer, methods=METHODS)]), port=port, log_level="error"
    )


if __name__ == "__main__":
    main()
