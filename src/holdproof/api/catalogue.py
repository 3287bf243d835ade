"""Every noun and verb of a store, as data: what faces that are not Python are made from.

A verb is offered elsewhere if everything it takes and gives can cross a wire. What lies on the disk of the store's
machine is no business of a stranger: a verb that needs such a place is not offered, and one that may be given such a
place is offered without it. A function of the caller stays with the caller, who is called back.
"""

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from holdproof.api.resources import Resources
from holdproof.api.wire import Named, Schema, Shape, dump, shape
from holdproof.db import Refused
from holdproof.db.effects import Give
from holdproof.errors import MissingExtraError
from holdproof.executors import Method, Resource, StreamsWith

_HERE: Final = frozenset({"close", "transaction"})
"""What belongs to the process that has the store open."""
_NOT_TOLD: Final = frozenset(
    {
        *(("image", "open"), ("dbom", "check_intent"), ("vectors", "reembed")),  # an open file, an embedder
        *(("skills", "approve"), ("skills", "fingerprint"), ("skills", "load"), ("skills", "watch")),  # files
        *(("keys", "init_root"), ("keys", "recover_root")),  # secrets that belong on paper
    }
)
"""What gives or needs something that stays in a process or on a machine."""
_CALLED_BACK: Final = frozenset({"fn", "progress"})
"""Functions of the caller that run outside any transaction; others cannot be asked over a wire."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that a verb takes."""

    name: str
    shape: Shape
    required: bool
    default: Any = None
    many: bool = False
    """Whether it takes any number, one after the other."""

    @property
    def offered(self) -> bool:
        """Whether a stranger may give it."""
        return not self.shape.local and (not self.shape.callback or self.name in _CALLED_BACK)

    def schema(self, named: Named) -> Schema:
        """The JSON Schema of what may be given."""
        one = self.shape.schema(named)
        whole: Schema = {"type": "array", "items": one} if self.many else dict(one)
        if not self.required and not self.many and self.default is not None and not self.shape.callback:
            whole["default"] = dump(self.default)
        return whole


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One verb of one noun."""

    noun: str
    verb: str
    reads: bool
    """Whether it changes nothing."""
    streams: bool
    """Whether it answers bit by bit."""
    secret: bool
    """Whether it gives a secret, which is shown once and kept nowhere."""
    parameters: tuple[Parameter, ...]
    answer: Shape
    summary: str
    signature: inspect.Signature

    @property
    def asked(self) -> bool:
        """Whether a query can say all it takes: then it is read like a page."""
        return self.reads and not self.streams and all(each.shape.scalar for each in self.parameters if each.offered)

    @property
    def name(self) -> str:
        """As a tool or an operation is called."""
        return f"{self.noun}_{self.verb}"

    @property
    def callbacks(self) -> tuple[str, ...]:
        """The parameters that are functions of the caller."""
        return tuple(each.name for each in self.parameters if each.shape.callback and each.offered)

    def arguments(self, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Named arguments as the verb takes them."""
        several = [each.name for each in self.parameters if each.many]
        args = tuple(item for name in several for item in given.get(name, ()))
        return args, {name: value for name, value in given.items() if name not in several}

    def parameter(self, name: str) -> Parameter | None:
        """One parameter by its name."""
        return next((each for each in self.parameters if each.name == name), None)

    def schema(self, named: Named, *, callbacks: bool = False) -> Schema:
        """The JSON Schema of all that a stranger may give, as one object."""
        given = [each for each in self.parameters if each.offered and (callbacks or not each.shape.callback)]
        return {
            "type": "object",
            "properties": {each.name: each.schema(named) for each in given},
            "required": [each.name for each in given if each.required],
            "additionalProperties": False,
        }


@cache
def entries() -> Mapping[tuple[str, str], MethodSpec]:
    """Every verb that can be offered, by noun and verb."""
    found = (each for noun, kind in _nouns() for each in _verbs(noun, kind))
    return {(each.noun, each.verb): each for each in found}


def _nouns() -> Iterable[tuple[str, type[Resource[Any]]]]:
    for name, noun in sorted(vars(Resources(None)).items()):  # type: ignore[type-var]
        if isinstance(noun, Resource):
            try:
                yield name, noun.kind
            except MissingExtraError:  # it cannot be offered here
                continue


def _verbs(noun: str, kind: type[Resource[Any]]) -> Iterable[MethodSpec]:
    for name, verb in inspect.getmembers_static(kind):
        if isinstance(verb, Method) and name not in _HERE and (noun, name) not in _NOT_TOLD:
            entry = _entry(noun, name, verb)
            if all(each.offered or not each.required for each in entry.parameters):
                yield entry


def _entry(noun: str, name: str, verb: Method[Any, Any]) -> MethodSpec:
    hints = get_type_hints(verb.fn)
    whole = inspect.signature(verb.fn)
    taken = list(whole.parameters.values())[verb.hidden :]
    return MethodSpec(
        noun=noun,
        verb=name,
        reads=verb.reads,
        streams=isinstance(verb, StreamsWith),
        secret=verb.secret,
        parameters=tuple(_parameter(each, hints.get(each.name, Any)) for each in taken),
        answer=shape(_answer(hints.get("return", Any))),
        summary=" ".join((verb.fn.__doc__ or "").split("\n\n")[0].split()),
        signature=whole.replace(parameters=taken, return_annotation=whole.empty),
    )


def _parameter(given: inspect.Parameter, hint: Any) -> Parameter:
    many = given.kind is given.VAR_POSITIONAL
    required = given.default is given.empty and not many
    return Parameter(given.name, shape(hint), required, None if required or many else given.default, many)


def _answer(hint: Any) -> Any:
    """What the caller gets: the result of work, what a stream gives, what was not refused."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Generator:
        gives = [each for each in get_args(parts[0]) if get_origin(each) is Give]
        return get_args(gives[0])[0] if gives else _answer(parts[2])
    if origin in (Future, Callable):  # a callable is a function of a transaction, made ready
        return _answer(parts[-1])
    if origin in (Union, UnionType):
        left = tuple(each for each in parts if each is not Refused)
        return Union[left]  # noqa: UP007 (made at run time)
    return hint
