"""A JSON schema brought into the shape that the grammar converter takes.

What a grammar can enforce stays; other keywords that only narrow (pattern, not, uniqueItems...) are dropped, so the
answer may be looser than the schema, unless it has to be strict (but "oneOf" is always read as "anyOf"). What has no
looser form, and what no value satisfies, is a `RequestError` that names the path.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from .keywords import bounds, fail, implied, integer, items, length, refuse_loose, string

MAX_DEPTH = 48
MAX_NODES = 5_000
MAX_PROPERTIES = 200  # of one object: after each optional one, all later ones may come
MAX_KEYWORDS = 200  # of one schema
MAX_REQUIRED = 1_000
MAX_NAME = 512
MAX_CHARS = 200_000  # of all names and values; the grammar repeats them
MAX_REF = 2_000
REF = "headstart-ref-"
ANY = {"type": "value"}
TYPES = frozenset({"boolean", "number", "integer", "object", "array", "string", "null"})


class Loosener:
    """Rewrites one schema; `run` returns the new root, references resolved into "$defs"."""

    def __init__(self, root: Any, *, strict: bool = False) -> None:
        self._root, self._strict, self._nodes, self._chars = root, strict, 0, 0
        self._names: dict[str, str] = {}
        self._defs: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        root = self._visit(self._root, "#", 0)
        if root == ANY:
            root = {"type": "object"}
        return {**root, "$defs": self._defs}

    def _visit(self, node: Any, path: str, depth: int) -> dict[str, Any]:
        self._count(path)
        if depth > MAX_DEPTH:
            fail(path, f"it nests deeper than {MAX_DEPTH}")
        if node is True:
            return ANY
        if node is False:
            fail(path, "nothing satisfies false")
        if not isinstance(node, dict):
            fail(path, "a schema is an object or a boolean")
        if len(node) > MAX_KEYWORDS:
            fail(path, f"it has more than {MAX_KEYWORDS} keywords")
        if self._strict:
            refuse_loose(node, path)
        if "$ref" in node:
            return self._ref(node["$ref"], path, depth)
        for key in ("anyOf", "oneOf"):
            if key in node:
                return {"anyOf": self._all(node[key], f"{path}/{key}", depth)}
        if "const" in node:
            return {"enum": [self._value(node["const"], f"{path}/const")]}
        if "enum" in node:
            return {"enum": [self._value(v, f"{path}/enum") for v in items(node["enum"], f"{path}/enum")]}
        if "allOf" in node:
            return self._merge(node, path, depth)
        return self._typed(node, path, depth)

    def _count(self, path: str, parts: int = 1) -> None:
        self._nodes += parts
        if self._nodes > MAX_NODES:
            fail(path, f"it has more than {MAX_NODES} parts")

    def _spend(self, chars: int, path: str) -> None:
        self._chars += chars
        if self._chars > MAX_CHARS:
            fail(path, f"its names and values have more than {MAX_CHARS} characters together")

    def _value(self, node: Any, path: str) -> Any:
        self._spend(length(node, path), path)
        return node

    def _all(self, choices: Any, path: str, depth: int) -> list[dict[str, Any]]:
        return [self._visit(v, f"{path}/{i}", depth + 1) for i, v in enumerate(items(choices, path))]

    def _typed(self, node: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        kind = node.get("type")
        if not isinstance(kind, list):
            return self._one_type(node, implied(node) if kind is None else kind, path, depth)
        kinds: list[Any] = []
        choices: list[dict[str, Any]] = []
        for one in items(kind, f"{path}/type"):
            self._count(path)
            if one not in kinds:  # there are few that are types
                kinds.append(one)
                choices.append(self._one_type(node, one, path, depth + 1))
        return {"anyOf": choices}

    def _one_type(self, node: dict[str, Any], kind: Any, path: str, depth: int) -> dict[str, Any]:
        if kind is None:
            return ANY
        if not isinstance(kind, str) or kind not in TYPES:
            fail(f"{path}/type", f"unknown type {str(kind)[:40]!r}")
        if kind == "object":
            return self._object(node, path, depth)
        if kind == "array":
            return self._array(node, path, depth)
        if kind == "string":
            return string(node, path)
        return integer(node, path) if kind == "integer" else {"type": kind}

    def _object(self, node: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        properties = node.get("properties") or {}
        required = node.get("required") or []
        if not isinstance(properties, dict) or len(properties) > MAX_PROPERTIES:
            fail(f"{path}/properties", f"it must be an object with at most {MAX_PROPERTIES} members")
        if not isinstance(required, list) or len(required) > MAX_REQUIRED:
            fail(f"{path}/required", f"it must be a list of at most {MAX_REQUIRED} names")
        if not all(isinstance(r, str) for r in required):
            fail(f"{path}/required", "it must be a list of names")
        for name in (*properties, *required[:MAX_PROPERTIES]):
            if len(name) > MAX_NAME:
                fail(f"{path}/properties", f"a name has more than {MAX_NAME} characters")
            self._spend(len(name), path)
        found = {k: self._visit(v, f"{path}/properties/{k}", depth + 1) for k, v in properties.items()}
        for name in required[:MAX_PROPERTIES]:
            found.setdefault(name, ANY)
        out: dict[str, Any] = {"type": "object"}
        if found:
            out |= {"properties": found, "required": [r for r in required if r in found]}
        more = node.get("additionalProperties")
        if node.get("patternProperties"):
            out["additionalProperties"] = ANY
        elif isinstance(more, dict) or (more is True and found):
            out["additionalProperties"] = self._visit(more, f"{path}/additionalProperties", depth + 1)
        elif more is False and not found:
            out["properties"] = {}
        return out

    def _array(self, node: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        tuple_items = node.get("prefixItems")
        if tuple_items is None and isinstance(node.get("items"), list):
            tuple_items = node["items"]
        if tuple_items:
            return {"type": "array", "prefixItems": self._all(tuple_items, f"{path}/prefixItems", depth)}
        low, high = bounds(node, "minItems", "maxItems", path)
        each = node.get("items", True)
        if each is False:
            low, high, each = 0, 0, True
        inner = self._visit(each, f"{path}/items", depth + 1)
        return {"type": "array", "items": inner, "minItems": low, "maxItems": high}

    def _merge(self, node: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        """allOf: objects are joined; anything else leaves its first part, which every value must satisfy too."""
        self._count(path, len(items(node["allOf"], f"{path}/allOf")))
        own = {k: v for k, v in node.items() if k != "allOf"}
        parts = [own] if implied(own) else []
        parts += [self._follow(p, f"{path}/allOf/{i}") for i, p in enumerate(items(node["allOf"], f"{path}/allOf"))]
        objects = [
            p for p in parts if isinstance(p, dict) and p.get("type", "object") == "object" and "properties" in p
        ]
        if len(objects) < 2 or len(objects) < len(parts):
            if self._strict and len(parts) > 1:
                fail(path, "'allOf' of anything but objects cannot be enforced; leave it out, or 'strict'")
            best = objects or parts
            return self._visit(best[0], f"{path}/allOf", depth + 1)
        merged: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        for part in objects:
            if self._strict:
                refuse_loose(part, f"{path}/allOf")
            if isinstance(part["properties"], dict):
                twice = merged["properties"].keys() & part["properties"].keys()
                if self._strict and twice:
                    fail(
                        f"{path}/allOf",
                        f"{min(twice)[:40]!r} in two parts cannot be enforced; leave one out, or 'strict'",
                    )
                if len(part["properties"]) > MAX_PROPERTIES:
                    fail(f"{path}/allOf", f"objects have at most {MAX_PROPERTIES} members")
                merged["properties"] |= part["properties"]
            if isinstance(part.get("required"), list):
                merged["required"] += part["required"][:MAX_REQUIRED]
        return self._visit(merged, f"{path}/allOf", depth + 1)

    def _follow(self, node: Any, path: str) -> Any:
        for _ in range(MAX_DEPTH):
            if not isinstance(node, dict) or "$ref" not in node:
                return node
            node = self._lookup(node["$ref"], path)
        return fail(path, "its references run in a circle")

    def _ref(self, ref: Any, path: str, depth: int) -> dict[str, Any]:
        target = self._lookup(ref, path)
        if ref not in self._names:
            name = self._names[ref] = f"{REF}{len(self._names)}"
            # A reference to nothing but a reference would be a rule that calls itself.
            self._defs[name] = self._visit(self._follow(target, path), ref, depth + 1)
        return {"$ref": f"#/$defs/{self._names[ref]}"}

    def _lookup(self, ref: Any, path: str) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#") or len(ref) > MAX_REF:
            fail(path, f"only references inside the schema work, not {str(ref)[:80]!r}")
        at = self._root
        for raw in [p for p in ref[1:].split("/") if p]:
            step = unquote(raw).replace("~1", "/").replace("~0", "~")
            if isinstance(at, dict) and step in at:
                at = at[step]
            elif isinstance(at, list) and step.isdecimal() and int(step) < len(at):
                at = at[int(step)]
            else:
                fail(path, f"{ref[:80]!r} points nowhere")
        return at
