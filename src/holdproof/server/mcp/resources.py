"""Answers of methods as resources, read by URI: flows, timelines, escalations, evaluations, objects, bundles, proofs.

Rules:
- A resource is the answer of a method that is a tool of this client too, under the same decision about the caller:
  what may not be read by a tool may not be read as a resource.
- A method says its URI itself (`Exposure.uri`); the template's variables are its parameters, read as those of a query.
- A list has as many items as a tool gives unless the URI says `limit`; its `cursor` leads to the next page.
- What is longer than a client should take in at once is refused, with the command that writes it to a file.
- `resources/list` names the newest flows, escalations, evaluations and objects that the caller may list, page by page.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final

import mcp_types as types
from mcp.shared.uri_template import UriTemplate

from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.errors import InvalidInputError, NotFoundError, TooLargeError
from holdproof.executors.exposure import Exposure
from holdproof.model.progress import Progress
from holdproof.server.mcp.calls import Client, perform
from holdproof.server.mcp.offer import Offer
from holdproof.server.mcp.tools import output_schema
from holdproof.server.permissions import may

_SCHEME: Final = "holdproof://"
_SCHEMAS: Final = UriTemplate.parse(f"{_SCHEME}schemas/{{tool}}")
_MOST_BYTES: Final = 8 * 1024 * 1024
_LISTED: Final = 50
"""How many resources a page of the list has."""


class ResourceOffer:
    """The resources of one server."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._tools = offer.tools()
        self._templates = [(each, template(each)) for each in self._tools.values() if each.exposure.uri]

    def templates(self, client: Client) -> list[types.ResourceTemplate]:
        """Return the templates of what the caller may read."""
        offered = [
            types.ResourceTemplate(
                name=entry.name,
                uri_template=str(each),
                description=entry.summary,
                mime_type=entry.exposure.media_type,
            )
            for entry, each in self._readable(client)
            if each.variables
        ]
        schemas = types.ResourceTemplate(
            name="output_schema",
            uri_template=str(_SCHEMAS),
            description="The whole JSON Schema of what a tool answers; the list of tools has the names of its fields.",
            mime_type="application/schema+json",
        )
        return [*offered, schemas]

    def _readable(self, client: Client) -> Iterator[tuple[MethodSpec, UriTemplate]]:
        caller = client.caller
        return (each for each in self._templates if may(caller, each[0].resource, each[0].method))

    async def page(self, client: Client, cursor: str | None) -> types.ListResourcesResult:
        """Return a page of the resources that there are: those without variables, then the newest of each list."""
        listed = [each for each in self._readable(client) if self._may_list(client, each[0])]
        names = [entry.resource for entry, _ in listed]
        section, _, inner = (cursor or "").partition(":")
        if cursor is not None and section not in names:
            raise InvalidInputError("this is no cursor of the list of resources", parameter="cursor")
        resources = [] if cursor is not None else self._fixed(client)
        for entry, each in listed[names.index(section) if section else 0 :]:
            page = await self._items(client, entry, inner or None)
            inner = ""
            resources += [_resource(entry, each, item) for item in page.items]
            if page.next_cursor is not None:
                return types.ListResourcesResult(
                    resources=resources, next_cursor=f"{entry.resource}:{page.next_cursor}"
                )
            if len(resources) >= _LISTED and entry.resource != names[-1]:
                following = names[names.index(entry.resource) + 1]
                return types.ListResourcesResult(resources=resources, next_cursor=f"{following}:")
        return types.ListResourcesResult(resources=resources)

    def _may_list(self, client: Client, entry: MethodSpec) -> bool:
        listing = _list_of(entry)
        return listing is not None and self._offer.holds(listing) and may(client.caller, entry.resource, "list")

    def _fixed(self, client: Client) -> list[types.Resource]:
        return [
            types.Resource(
                name=entry.name, uri=each.expand({}), description=entry.summary, mime_type=entry.exposure.media_type
            )
            for entry, each in self._readable(client)
            if not _path_variables(each)
        ]

    async def _items(self, client: Client, entry: MethodSpec, cursor: str | None) -> Any:
        """Return a page of what a resource has, as its own `list` gives it to this caller."""
        listing = _list_of(entry)
        assert listing is not None
        values: dict[str, Any] = {"limit": _LISTED, "cursor": cursor}
        # An agent may list its own.
        if client.caller.role == "agent" and listing.parameter("agent_id") is not None:
            values["agent_id"] = client.caller.agent_id
        return await perform(client, listing, values)

    async def read(self, client: Client, uri: str, tell: Progress | None = None) -> types.ReadResourceResult:
        """Return the content of a resource; NotFoundError where no template fits, and what the method raises."""
        if (schema := _SCHEMAS.match(uri)) is not None:
            return types.ReadResourceResult(contents=[self._schema(client, uri, str(schema["tool"]))])
        for entry, each in self._templates:
            matched = each.match(uri)
            if matched is not None:
                values = {name: _value(entry, name, text) for name, text in matched.items()}
                value = await perform(client, entry, values, tell)
                return types.ReadResourceResult(contents=[_content(entry, uri, value)])
        raise NotFoundError(f"there is no resource {uri}; resources/templates/list has those there are", uri=uri)

    def _schema(self, client: Client, uri: str, tool: str) -> types.TextResourceContents:
        entry = self._tools.get(tool)
        if entry is None or not may(client.caller, entry.resource, entry.method):
            raise NotFoundError(f"there is no tool {tool}", tool=tool)
        text = json.dumps(output_schema(entry), ensure_ascii=False)
        return types.TextResourceContents(uri=uri, mime_type="application/schema+json", text=text)


def template(entry: MethodSpec) -> UriTemplate:
    """Return the template of a method's URI."""
    return UriTemplate.parse(_SCHEME + entry.exposure.uri)


def address(entry: MethodSpec, values: Mapping[str, Any]) -> str:
    """Return the URI of what a method answers with these arguments; that of the method where it is no resource."""
    if not entry.exposure.uri:
        return f"{_SCHEME}{entry.resource}/{entry.method}"
    each = template(entry)
    defaults = {parameter.name: parameter.default for parameter in entry.parameters}
    return each.expand({name: str(values.get(name, defaults[name])) for name in _path_variables(each)})


def _path_variables(each: UriTemplate) -> list[str]:
    """Return the variables without which there is no resource: those of the path."""
    return [name for name in each.variable_names if name not in each.query_variable_names]


def _list_of(entry: MethodSpec) -> MethodSpec | None:
    """Return the method that lists what this one gets one of; None where there is none, or it gets no single thing."""
    if entry.method != "get" or entry.answer.scalar:
        return None
    listing = entries().get((entry.resource, "list"))
    return listing if listing is not None and listing.parameter("cursor") is not None else None


def _resource(entry: MethodSpec, each: UriTemplate, item: Any) -> types.Resource:
    [key] = _path_variables(each)
    name = str(getattr(item, key))
    return types.Resource(
        name=f"{entry.resource}/{name}", uri=each.expand({key: name}), mime_type=entry.exposure.media_type
    )


def _value(entry: MethodSpec, name: str, text: str | list[str]) -> Any:
    parameter = entry.parameter(name)
    assert parameter is not None
    assert isinstance(text, str)
    return parameter.shape.read(text, name)


def _content(entry: MethodSpec, uri: str, value: Any) -> types.TextResourceContents | types.BlobResourceContents:
    exposure: Exposure = entry.exposure
    if isinstance(value, bytes):
        _bounded(entry, uri, len(value))
        return types.BlobResourceContents(uri=uri, mime_type=exposure.media_type, blob=b64encode(value).decode())
    # A document is a text in a format of its own, which other programs read.
    document = getattr(value, exposure.document) if exposure.document else None
    content = json.dumps(wire.dump(value), ensure_ascii=False).encode() if document is None else document
    _bounded(entry, uri, len(content))
    return types.TextResourceContents(uri=uri, mime_type=exposure.media_type, text=content.decode())


def _bounded(entry: MethodSpec, uri: str, size: int) -> None:
    if size > _MOST_BYTES:
        command = entry.exposure.alias or f"{entry.resource} {entry.method}"
        raise TooLargeError(
            f"{uri} has {size:,} bytes, and a resource {_MOST_BYTES:,} at most",
            remedy=f"`holdproof {command} --out FILE` writes it to a file",
            bytes=size,
            limit=_MOST_BYTES,
        )
