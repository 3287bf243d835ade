"""Prompts: the texts of api/prompts.py with the records that they are about, for callers who may read those."""

from collections.abc import Iterator, Mapping

import mcp_types as types

from holdproof.api.catalogue import MethodSpec, methods
from holdproof.api.prompts import PROMPTS, PromptSpec
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.server.mcp.calls import Client
from holdproof.server.mcp.offer import Offer, tool_name
from holdproof.server.mcp.resources import ResourceOffer, address
from holdproof.server.permissions import may


class PromptOffer:
    """The prompts of one server."""

    def __init__(self, offer: Offer, resources: ResourceOffer) -> None:
        self._offer = offer
        self._resources = resources

    def list(self, client: Client) -> list[types.Prompt]:
        """Return the prompts whose every method is a tool that the caller may use."""
        return [_described(each) for each in self._offered(client)]

    def _offered(self, client: Client) -> Iterator[PromptSpec]:
        for prompt in PROMPTS:
            needed = _specs(prompt)
            if all(self._offer.holds(each) and may(client.caller, each.resource, each.method) for each in needed):
                yield prompt

    async def get(self, client: Client, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return a prompt with its arguments filled in and its records below it."""
        prompt = next((each for each in self._offered(client) if each.name == name), None)
        if prompt is None:
            raise NotFoundError(f"there is no prompt {name} for this caller", prompt=name)
        if unknown := sorted(arguments.keys() ^ set(prompt.arguments)):
            takes = ", ".join(prompt.arguments)
            raise InvalidInputError(f"the prompt {name} takes {takes}, and nothing else", parameter=unknown[0])
        names = {each.name: tool_name(each) for each in _specs(prompt)}
        text = types.TextContent(type="text", text=prompt.text.format(**names, **arguments))
        messages = [types.PromptMessage(role="user", content=text)]
        for resource, method in prompt.shows:
            uri = address(methods()[resource, method], arguments)
            read = await self._resources.read(client, uri)
            embedded = [types.EmbeddedResource(resource=each) for each in read.contents]
            messages += [types.PromptMessage(role="user", content=each) for each in embedded]
        return types.GetPromptResult(description=prompt.summary, messages=messages)


def _specs(prompt: PromptSpec) -> list[MethodSpec]:
    return [methods()[each] for each in dict.fromkeys((*prompt.shows, *prompt.uses))]


def _described(prompt: PromptSpec) -> types.Prompt:
    sources = [methods()[each] for each in prompt.shows]
    arguments = [
        types.PromptArgument(name=name, description=_description(sources, name), required=True)
        for name in prompt.arguments
    ]
    return types.Prompt(name=prompt.name, title=prompt.title, description=prompt.summary, arguments=arguments)


def _description(sources: list[MethodSpec], name: str) -> str:
    return next(parameter.description for each in sources if (parameter := each.parameter(name)) is not None)
