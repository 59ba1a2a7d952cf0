"""Documents as they lie in public repositories, planned calls, and what has arrived of these.

`openapi.py`, its server and its peer use it; it has no code of this package, and runs where that is not
installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

METHODS = ("get", "put", "post", "delete", "patch")


class Raw:
    """A document as it lies there, with the values of its references."""

    def __init__(self, path: Path) -> None:
        self.path, self.files, self.reading = path, dict[Path, Any](), False
        self.said = self.file(path)

    def file(self, path: Path) -> Any:
        if path not in self.files:
            text = path.read_text()
            if text.lstrip()[:1] == "{":
                self.files[path] = json.loads(text)
            else:
                import yaml

                self.files[path] = json.loads(json.dumps(yaml.load(text, yaml.CSafeLoader), default=str))
        return self.files[path]

    def followed(self, value: Any, base: Path) -> tuple[Any, Path]:
        while isinstance(value, dict) and isinstance(value.get("$ref"), str):
            file, _, pointer = value["$ref"].partition("#")
            base = (base.parent / file).resolve() if file else base
            value = self.file(base)
            for step in filter(None, pointer.split("/")):
                step = step.replace("~1", "/").replace("~0", "~").replace("%7B", "{").replace("%7D", "}")
                value = value[int(step)] if isinstance(value, list) else value[step]
        return value, base

    def sample(self, value: Any, base: Path, depth: int = 0) -> Any:
        """A value that fits a schema of a request, as far as that is easy."""
        schema, base = self.followed(value, base)
        if not isinstance(schema, dict):
            return "x"
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return next((one for one in schema["enum"] if one not in (None, "")), schema["enum"][0])
        if depth > 6:
            raise ValueError("too deep")
        if "allOf" in schema:
            return self._together(schema, base, depth)
        for key in ("oneOf", "anyOf"):
            if key in schema:
                chosen = next(
                    one for one in schema[key] if not (isinstance(one, dict) and one.get("type") == "null")
                )
                rest = {
                    name: one for name, one in schema.items() if name in ("type", "properties", "required")
                }
                made = self.sample(chosen, base, depth + 1)
                if isinstance(made, dict) and "properties" in rest:
                    made = {**self.sample(rest, base, depth + 1), **made}
                said = schema.get("discriminator")
                if isinstance(said, dict) and isinstance(made, dict) and "$ref" in chosen:
                    named = [one for one, to in said.get("mapping", {}).items() if to == chosen["$ref"]]
                    made[said["propertyName"]] = (named or [chosen["$ref"].rpartition("/")[2]])[0]
                return made
        return self._plain(schema, base, depth)

    def _together(self, schema: dict[str, Any], base: Path, depth: int) -> Any:
        """A value that fits all schemas of an `allOf`."""
        parts, due = list[tuple[Any, Path]](), [(schema, base)]
        while due and len(parts) < 50:
            one, there = self.followed(*due.pop(0))
            parts.append((one, there))
            due += [(each, there) for each in one.get("allOf", [])]
        if not any("properties" in one for one, _ in parts):
            others = [one for one in parts[1:] if {"type", "enum", "oneOf", "anyOf"} & one[0].keys()]
            return self.sample(*(others or parts[1:])[0], depth + 1)
        made: dict[str, Any] = {}
        for one, there in parts:
            plain = {key: each for key, each in one.items() if key != "allOf"}
            if {"properties", "oneOf", "anyOf"} & plain.keys():
                made |= self.sample(plain, there, depth + 1)
        for name in (name for one, _ in parts for name in one.get("required", [])):
            for one, there in parts:
                if name not in made and name in one.get("properties", {}):
                    made[name] = self.sample(one["properties"][name], there, depth + 1)
        return made

    def answer(self, value: Any, base: Path) -> Any:
        """A value that fits a schema of an answer: with what is read-only."""
        self.reading = True
        try:
            return self.sample(value, base)
        except (ValueError, StopIteration, KeyError, TypeError, RecursionError):
            return {}
        finally:
            self.reading = False

    def _plain(self, schema: dict[str, Any], base: Path, depth: int) -> Any:
        kind = schema.get("type")
        kind = next((one for one in kind if one != "null"), None) if isinstance(kind, list) else kind
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        if kind == "object":
            return self._object(schema, base, depth)
        if kind == "array":
            return [self.sample(schema.get("items", {}), base, depth + 1)] * max(1, schema.get("minItems", 1))
        if kind in ("integer", "number"):
            least = schema.get("minimum", schema.get("exclusiveMinimum", 1))
            least = 1 if isinstance(least, bool) else least
            made = (
                least + 1
                if schema.get("exclusiveMinimum")
                else max(least, 1)
                if schema.get("maximum", 2) >= 1
                else least
            )
            return int(made) if kind == "integer" else made
        if kind == "boolean":
            return True
        if kind == "file" or schema.get("format") == "binary":
            return "data:text/plain;base64,aGVsbG8="
        return self._text(schema)

    def _object(self, schema: dict[str, Any], base: Path, depth: int) -> Any:
        properties = schema.get("properties", {})
        wanted = [one for one in schema.get("required", []) if one in properties]
        writable = []
        for name, one in properties.items():
            part, _ = self.followed(one, base)
            if self.reading or not (isinstance(part, dict) and part.get("readOnly")):
                writable.append(name)
        if depth < 2:
            simple = ("string", "integer", "boolean")
            more = [
                n
                for n in writable
                if n not in wanted and self.followed(properties[n], base)[0].get("type") in simple
            ]
            wanted += more[:2]
        return {name: self.sample(properties[name], base, depth + 1) for name in wanted if name in writable}

    def _text(self, schema: dict[str, Any]) -> str:
        formats = {
            "date-time": "2026-01-02T03:04:05Z",
            "date": "2026-01-02",
            "uuid": "7f0c8f0e-3d4b-4c57-9a3c-0d6a6a0b1c2d",
            "email": "ada@example.com",
            "uri": "https://example.com/a",
            "url": "https://example.com/a",
            "ipv4": "192.0.2.1",
            "byte": "aGVsbG8=",
            "time": "03:04:05Z",
        }
        candidates = [
            formats.get(schema.get("format", ""), "example"),
            "a" * schema.get("minLength", 1),
            "A1",
            "1",
            "12345678",
            "US",
        ]
        candidates += [
            "https://example.com/a",
            "2026-01-02",
            "ada@example.com",
            "AB" * 8,
            "#aabbcc",
            "abc-def",
            "EUR",
            "123456789012345678",
        ]
        candidates = [
            one.ljust(schema.get("minLength", 0), "a")[: schema.get("maxLength", 999)] for one in candidates
        ]
        pattern = schema.get("pattern")
        if found := re.fullmatch(r"\^(\w*)\[0-9a-fA-F\]\{(\d+)\}\$", str(pattern)):
            return found[1] + "a" * int(found[2])
        if not isinstance(pattern, str):
            return candidates[0]
        return next(one for one in candidates if re.search(pattern, one))


def calls_of(raw: Raw, count: int) -> Iterator[dict[str, Any]]:
    """So many calls of a document, of operations that lie evenly in it."""
    every = [
        (method, path, item)
        for path, item in raw.said["paths"].items()
        for item in [raw.followed(item, raw.path)]
        for method in METHODS
        if isinstance(item[0], dict) and method in item[0]
    ]
    made, step = 0, max(1, len(every) // count)
    order = [one for start in range(step) for one in every[start::step]]
    for method, path, (item, base) in order:
        if made == count:
            return
        try:
            call = planned(raw, method, path, item, base)
        except (ValueError, StopIteration, KeyError, TypeError, RecursionError):
            continue
        if call is not None:
            made += 1
            yield call


def planned(raw: Raw, method: str, path: str, item: Any, base: Path) -> dict[str, Any] | None:
    operation, at = raw.followed(item[method], base)
    said = [raw.followed(one, base) for one in item.get("parameters", [])]
    said += [raw.followed(one, at) for one in operation.get("parameters", [])]
    parameters = [
        found for number, one in enumerate(said) if (found := parameter(raw, *one, number)) is not None
    ]
    if any(place == "path" and value in ("", None) for place, _, value in parameters):
        return None
    body, media = body_of(raw, operation, at, said)
    call = {"method": method.upper(), "path": path, "parameters": parameters}
    return {**call, "body": body, "media": media}


def parameter(raw: Raw, said: Any, base: Path, number: int) -> list[Any] | None:
    """The place, the name and a value of a parameter; `None` for one that is not sent."""
    place, name = said["in"], said["name"]
    is_wanted = said.get("required") or place == "path" or (number < 4 and place == "query")
    is_ignored = place == "header" and name.lower() in ("accept", "content-type", "authorization")
    if place in ("body", "formData") or not is_wanted or is_ignored:
        return None
    schema = (
        next(iter(said["content"].values())).get("schema", {})
        if "content" in said
        else said.get("schema", said)
    )
    value = raw.sample(schema, base)
    return None if value in ([], {}) else [place, name, value]


def body_of(raw: Raw, operation: Any, base: Path, said: Any) -> tuple[Any, str]:
    """A body, and its media type."""
    form = {}
    for one, there in said:
        if one["in"] == "body":
            return raw.sample(one["schema"], there), "application/json"
        if one["in"] == "formData" and one.get("required"):
            form[one["name"]] = raw.sample(one, there)
    if "requestBody" not in operation:
        return (form, "form") if form else (None, "")
    request, there = raw.followed(operation["requestBody"], base)
    contents = request.get("content", {})
    found = sorted(contents, key=lambda one: ("json" not in one, "form" not in one))
    if not found:
        return None, ""
    media = found[0].split(";")[0]
    if media in ("application/octet-stream", "*/*") or media.startswith(("image/", "audio/")):
        return "data:text/plain;base64,aGVsbG8=", media
    return raw.sample(contents[found[0]].get("schema", {}), there), media


def arguments_for(call: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The values of a call under the names that a tool has for them."""
    known, made = schema.get("properties", {}), {}
    for place, name, value in call["parameters"]:
        names = (f"{name}__{place}", f"{place}_{name}", name)
        made[next((one for one in names if one in known), name)] = value
    body = call["body"]
    if body is None:
        return made
    own = {one for _, one, _ in call["parameters"]}
    if isinstance(body, dict) and body and all(one in known for one in body) and not {*body} <= own:
        return {**made, **body}
    if isinstance(body, dict) and "body" not in known and "request_body" not in known:
        return {**made, **body}
    made["request_body" if "request_body" in known else "body"] = body
    return made


def arrived(call: dict[str, Any], told: Any) -> str:
    """The parts of a call that did not arrive as they were meant; empty if all did."""
    if told is None:
        return "no request has come"
    if told["refused"]:
        return f"refused: {told['refused']}"[:400]
    got, raw = told["got"], told["raw"]
    for place, name, value in call["parameters"]:
        came = got[place].get(name, got[place].get(name.lower()))
        if came is None:
            # What openapi-core has not read is looked for in the address itself.
            if place in ("path", "query") and all(
                one in raw.replace("+", "%20") for one in _written(name, value)
            ):
                continue
        if came != value and not _alike(came, value):
            return f"{place} {name} is {came!r}, not {value!r}"
    if call["media"].endswith("json") and (got["body"] or {}) != (call["body"] or {}):
        return f"the body is {str(got['body'])[:200]}, not {str(call['body'])[:200]}"
    return ""


def _written(name: str, value: Any) -> Iterator[str]:
    """What is in an address that has a value; members of it in the style `deepObject`."""
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _written(f"{name}[{key}]=", one)
    else:
        text = quote(str(value).lower() if isinstance(value, bool) else str(value), safe="")
        yield f"{name}{text}" if name.endswith("=") else text


def _alike(came: Any, value: Any) -> bool:
    """True if values are the same but for the types that openapi-core makes of dates and numbers."""
    if isinstance(came, list) and isinstance(value, list) and len(came) == len(value):
        return all(_alike(one, two) for one, two in zip(came, value, strict=True))
    if isinstance(value, list) and len(value) == 1:
        return _alike(came, value[0])
    if isinstance(came, list) and len(came) == 1:
        # Box has several operations at one address, in one of which it is a list.
        return _alike(came[0], value)
    if isinstance(value, dict) and isinstance(came, dict):
        return {*came} >= {*value} and all(_alike(came[key], one) for key, one in value.items())
    plain = str(came).replace(" ", "T").replace("+00:00", "Z")
    return (
        plain == str(value)
        or plain.removesuffix("T00:00:00") == str(value)
        or str(came).lower() == str(value).lower()
    )
