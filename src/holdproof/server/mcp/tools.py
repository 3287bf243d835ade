"""Methods as tools: what a client is told of each, and what it gets.

Rules:
- What a tool takes is its whole schema, made from the operation.
- What it answers is an object, and valid by the tool's output schema. The list of tools has the short form of that, the
  names of the fields; the whole one is a resource, `holdproof://schemas/TOOL` (docs/adr/0064-output-schemas.md).
- Bytes, as a bundle, are an embedded resource that the client can save; no model reads base64.
- What fails is a result that says so, with code and remedy: a model can read it and act.
"""

import json
from base64 import b64encode
from typing import Any, Final

import mcp_types as types

from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec
from holdproof.api.parameters import DESTINATIONS
from holdproof.api.wire import Named, Schema

_EMBEDDED: Final[Schema] = {
    "type": "object",
    "properties": {"media_type": {"type": "string"}, "bytes": {"type": "integer"}},
    "required": ["media_type", "bytes"],
}
"""What stands beside an embedded resource: what it is, and how long."""


def describe(name: str, entry: MethodSpec) -> types.Tool:
    """Describe a method as a tool."""
    return types.Tool(
        name=name,
        description=entry.summary,
        input_schema=input_schema(entry),
        output_schema=_short(output_schema(entry)),
        annotations=types.ToolAnnotations(read_only_hint=entry.reads, open_world_hint=False),
    )


def input_schema(entry: MethodSpec) -> Schema:
    """Return the schema of what a tool takes, with all that it refers to."""
    named: Named = {}
    schema = entry.schema(named)
    # Who does it is whoever calls: a model that is asked for a name would make one up.
    unasked = DESTINATIONS | {each.name for each in entry.parameters if each.names_caller}
    unasked |= entry.exposure.read_only_with.keys()
    schema["properties"] = {name: each for name, each in schema.get("properties", {}).items() if name not in unasked}
    schema["required"] = [name for name in schema["required"] if name not in unasked]
    return _whole(schema, named)


def output_schema(entry: MethodSpec) -> Schema:
    """Return the whole schema of what a tool answers, as its structured content."""
    if _gives_bytes(entry):
        return _EMBEDDED
    named: Named = {}
    answer = entry.answer.schema(named)
    # Structured content has to be an object; other values are wrapped.
    if not _is_object(answer):
        return _whole({"type": "object", "properties": {"answer": answer}, "required": ["answer"]}, named)
    reference = str(answer.get("$ref", ""))
    return _whole(dict(named[reference.rpartition("/")[2]]) if reference else answer, named)


def _whole(schema: Schema, named: Named) -> Schema:
    text = json.dumps({**schema, "$defs": named} if named else schema)
    whole: Schema = json.loads(text.replace("#/components/schemas/", "#/$defs/"))
    return whole


def _short(schema: Schema) -> Schema:
    """Return the names of the fields: whole schemas would take more of a model's context than the tools themselves."""
    names = list(schema.get("properties", ()))
    return {"type": "object", "required": names} if names else {"type": "object"}


def _gives_bytes(entry: MethodSpec) -> bool:
    return entry.answer is wire.shape(bytes)


def result(entry: MethodSpec, value: Any, uri: str) -> types.CallToolResult:
    """Return what a tool answers with: a text as it is, bytes to be saved as `uri`, anything else as JSON."""
    if isinstance(value, bytes):
        media_type = entry.exposure.media_type
        facts = {"media_type": media_type, "bytes": len(value)}
        blob = types.BlobResourceContents(uri=uri, mime_type=media_type, blob=b64encode(value).decode())
        return _answer(facts, types.EmbeddedResource(resource=blob))
    answer = wire.dump(value)
    return _answer(answer, as_object=_is_object(entry.answer.schema({})))


def _is_object(answer: Schema) -> bool:
    """Say whether answers of this schema are objects, and so are not wrapped."""
    return "$ref" in answer or answer.get("type") == "object"


def failure(facts: dict[str, Any]) -> types.CallToolResult:
    """Return what a tool answers with that failed: a problem document."""
    return _answer(facts).model_copy(update={"is_error": True})


def _answer(answer: Any, *more: types.EmbeddedResource, as_object: bool = True) -> types.CallToolResult:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text), *more]
    return types.CallToolResult(
        content=content, structured_content=answer if as_object else {"answer": answer}, is_error=False
    )
