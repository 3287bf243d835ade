"""The API as pages show it: every address once, with its parameters, a call and an example of its answer; pure.

Made from the OpenAPI document; where a resource stands, and how its command is called, the catalogue adds.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from holdproof.api.catalogue import declared_resources, entries
from holdproof.model.times import BEGINNING, END

Schema = Mapping[str, Any]

GROUPS: Final = ("Run", "Inspect", "Approve", "Prove", "Operate")
"""The groups of resources, in the order in which they are shown; what belongs to none is the server's own."""
SERVER: Final = "Server"
_SERVERS_OWN: Final = "What the server itself answers: its health, its events, and its log for witnesses."
_JSON: Final = "application/json"
_DEPTH: Final = 5
_WIDEST: Final = 2**31 - 1
_MOMENT: Final = "2026-01-31T12:00:00.000000Z"
_ID: Final = "0198a7c2-9c1e-7a3b-8d4e-5f6071829304"
_SAMPLES: Final = {
    "agent_id": "buyer",
    "flow_type": "large order",
    "ns": "main",
    "by": "ann",
    "reason": "over the limit of 500",
    "status": "RUNNING",
    "flow_version": "1.0",
    "created_by_type": "agent",
    "impact": "HIGH_IMPACT",
    "type": "fact",
    "kind": "approval",
    "comment": "four hundred is enough",
    "text": "parcel",
    "cursor": "WzQyXQ",
    "next_cursor": None,
}
_MOMENTS: Final = ("_at", "since", "until", "deadline")


@dataclass(frozen=True, slots=True)
class ApiParameter:
    """One parameter of an address."""

    name: str
    place: str
    """Where it goes: `query`, `header`, `path` or `body`."""
    type: str
    is_required: bool
    default: str
    says: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """One address: how it is called, what it takes, what it answers."""

    path: str
    anchor: str
    methods: tuple[str, ...]
    summary: str
    says: str
    parameters: tuple[ApiParameter, ...]
    is_public: bool
    curl: str
    command: str
    media: tuple[str, ...]
    example: str

    @property
    def can_be_tried(self) -> bool:
        """Whether a page may call it: it changes nothing, and an address says all that it needs."""
        return "GET" in self.methods and _JSON in self.media and "{" not in self.path

    def matches(self, words: str) -> bool:
        """Whether its address or its summary has all of some words, in any case."""
        text = f"{self.path} {self.summary} {' '.join(each.name for each in self.parameters)}".lower()
        return all(word in text for word in words.lower().split())


@dataclass(frozen=True, slots=True)
class ApiResource:
    """The addresses of one resource."""

    name: str
    group: str
    says: str
    addresses: tuple[ApiAddress, ...]


def resources(document: Schema) -> tuple[ApiResource, ...]:
    """Return every address of an OpenAPI document by its resource, in the order in which they are shown."""
    declared = {name: resource.kind for name, resource in declared_resources()}
    tagged: dict[str, list[ApiAddress]] = {}
    for path, operations in sorted(document["paths"].items()):
        tags = next((each["tags"] for each in operations.values() if each.get("tags")), [SERVER])
        name = tags[0] if tags[0] in declared else SERVER.lower()
        tagged.setdefault(name, []).append(_address(path, operations, document))
    every = [
        ApiResource(name, _group(declared.get(name)), _says(declared.get(name)), tuple(addresses))
        for name, addresses in tagged.items()
    ]
    order = {group: place for place, group in enumerate((*GROUPS, SERVER))}
    return tuple(sorted(every, key=lambda each: (order[each.group], each.name)))


def _group(resource: Any) -> str:
    group = SERVER if resource is None else getattr(resource, "group", "")
    return group if group in (*GROUPS, SERVER) else "Operate"


def _says(resource: Any) -> str:
    return _SERVERS_OWN if resource is None else " ".join((resource.__doc__ or "").split("\n\n")[0].split())


def _address(path: str, operations: Schema, document: Schema) -> ApiAddress:
    get, post = operations.get("get"), operations.get("post")
    first = get or post or next(iter(operations.values()))
    parameters = (*_queried(get, document), *_posted(post, get, document))
    media = tuple((first["responses"].get("200") or {}).get("content", {}))
    return ApiAddress(
        path=path,
        anchor=path.strip("/").removeprefix("v1/").replace("/", "."),
        methods=tuple(method.upper() for method in ("get", "post") if method in operations),
        summary=first.get("summary", ""),
        says=first.get("description", ""),
        parameters=parameters,
        is_public=first.get("security") == [],
        curl=_curl(path, get, parameters, document, post),
        command=_command(path),
        media=media,
        example=_example(first, media, document),
    )


def _queried(operation: Schema | None, document: Schema) -> tuple[ApiParameter, ...]:
    listed = (operation or {}).get("parameters", ())
    return tuple(_parameter(each["name"], each["in"], each, each.get("required", False), document) for each in listed)


def _posted(post: Schema | None, get: Schema | None, document: Schema) -> tuple[ApiParameter, ...]:
    """Return what only the body of a call may hold: what a query can say too is told once."""
    schema = _body(post)
    query_names = {each["name"] for each in (get or {}).get("parameters", ())}
    required = frozenset(schema.get("required", ()))
    return tuple(
        _parameter(name, "body", {"schema": each}, name in required, document)
        for name, each in schema.get("properties", {}).items()
        if name not in query_names
    )


def _body(operation: Schema | None) -> Schema:
    content = (operation or {}).get("requestBody", {}).get("content", {})
    schema: Schema = content.get(_JSON, {}).get("schema", {})
    return schema


def _parameter(name: str, place: str, facts: Schema, is_required: bool, document: Schema) -> ApiParameter:
    schema = facts.get("schema", {})
    default = schema.get("default")
    return ApiParameter(
        name,
        place,
        _type(schema, document),
        is_required,
        "" if default is None or default == "" else _literal(default),
        str(facts.get("description") or schema.get("description", "")),
        tuple(map(str, _narrow(schema).get("enum", ()))),
    )


def _literal(value: Any) -> str:
    if value in (BEGINNING, END):
        return "the beginning" if value == BEGINNING else "no end"
    return value if isinstance(value, str) else json.dumps(value)


def _narrow(schema: Schema) -> Schema:
    """Return a schema without the null that it also allows."""
    branches = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return branches[0] if branches else schema


def _type(schema: Schema, document: Schema) -> str:
    one = _narrow(schema)
    if "$ref" in one:
        return str(one["$ref"]).rsplit("/", 1)[-1]
    if one.get("enum"):
        return "one of"
    if one.get("type") == "array":
        return f"list of {_type(one.get('items', {}), document)}"
    return f"{one.get('type', 'any JSON')}{_bounds(one.get('minimum'), one.get('maximum'))}"


def _bounds(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return ""
    # What only the width of a column bounds is no bound to a reader.
    return f", {least} to {most}" if most < _WIDEST else f", {least} or more"


# --- calls -----------------------------------------------------------------------------------------------------------

_AUTHORIZATION: Final = '-H "Authorization: Bearer $HOLDPROOF_TOKEN"'


def _curl(
    path: str, get: Schema | None, parameters: Sequence[ApiParameter], document: Schema, post: Schema | None
) -> str:
    """Return a line for a shell that calls an address with all that it needs."""
    base = "curl" if (get or post or {}).get("security") == [] else f"curl {_AUTHORIZATION}"
    if get is not None:
        needed = {each.name: str(_sample(each.name, {})) for each in parameters if each.is_required}
        query = f"?{urlencode(needed)}" if needed else ""
        return f'{base} "$HOLDPROOF_SERVER{path}{query}"'
    schema = _body(post)
    needed_body = {
        name: _value(name, schema["properties"][name], document, _DEPTH) for name in schema.get("required", ())
    }
    body = shlex.quote(json.dumps(needed_body, ensure_ascii=False))
    return f'{base} -H "Content-Type: application/json" \\\n  -d {body} "$HOLDPROOF_SERVER{path}"'


def _command(path: str) -> str:
    """Return the command that does the same; empty where there is none."""
    parts = path.strip("/").split("/")
    spec = entries().get((parts[-2], parts[-1])) if len(parts) == 3 else None
    if spec is None or not spec.exposure.command:
        return ""
    words = spec.exposure.alias or f"{spec.resource} {spec.method}"
    return f"holdproof {words.replace('_', '-')} {spec.exposure.example}".rstrip()


# --- examples --------------------------------------------------------------------------------------------------------


def _example(operation: Schema, media: Sequence[str], document: Schema) -> str:
    """Return an answer as it may look; empty where it is no JSON, or nothing is known of it."""
    if _JSON not in media:
        return ""
    schema = operation["responses"]["200"]["content"][_JSON].get("schema", {})
    if schema.get("type") == "object" and not schema.get("properties"):
        return ""
    return json.dumps(_value("", schema, document, _DEPTH), indent=2, ensure_ascii=False)


def _value(name: str, schema: Schema, document: Schema, depth: int) -> Any:
    """Return a value that a schema allows, such as one meets."""
    one = _narrow(schema)
    if "$ref" in one:
        one = document["components"]["schemas"].get(str(one["$ref"]).rsplit("/", 1)[-1], {})
    if name in _SAMPLES or one.get("type") == "string":
        return _sample(name, one)
    if depth == 0:
        return None
    if one.get("type") == "array":
        return [_value(name.removesuffix("s"), one.get("items", {}), document, depth - 1)]
    if "properties" in one:
        return {key: _value(key, each, document, depth - 1) for key, each in one["properties"].items()}
    return _SIMPLE.get(str(one.get("type")), {"amount": 400})


_SIMPLE: Final[Mapping[str, Any]] = {
    "integer": 1,
    "number": 0.5,
    "boolean": True,
    "null": None,
    "object": {"amount": 400},
}


def _sample(name: str, schema: Schema) -> Any:
    """Return a text, or another plain value, as a parameter of that name has it."""
    if schema.get("enum"):
        return schema["enum"][0]
    if name in _SAMPLES:
        return _SAMPLES[name]
    if name.endswith(_MOMENTS) or name == "at":
        return _MOMENT
    return _ID if name == "id" or name.endswith("_id") else "…"
