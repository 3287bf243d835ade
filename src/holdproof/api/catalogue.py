"""Every resource and method of a store as data: what clients other than Python are generated from.

A method is offered to remote clients if everything it takes and returns can cross a wire. Files of the store's machine
are not for remote callers: a method that needs one is not offered, and an optional parameter for one is left out. A
function of the caller stays with the caller, who is called back.
"""

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from holdproof.api.parameters import CALLED_BACK, PARAMETERS, SIGNED_BY_CALLER
from holdproof.api.resources import Resources
from holdproof.api.wire import Named, Schema, WireShape, dump, shape
from holdproof.db import Refused
from holdproof.db.effects import Give
from holdproof.errors import MissingExtraError
from holdproof.executors import Exposure, Method, Resource, StreamsWith
from holdproof.lazy import lazy_module
from holdproof.model import typed_json
from holdproof.model.typed_json import Recordable, TaggedJson
from holdproof.validation import MOST_PAGE

if TYPE_CHECKING:
    from holdproof.api import flow_block
    from holdproof.storage import relational
else:
    # Only servers and remote clients ask for blocks.
    flow_block = lazy_module("holdproof.api.flow_block")
    relational = lazy_module("holdproof.storage.relational")

BlockName = Literal["flow", "transaction"]
"""The blocks that a remote client can open."""
SET_BY_BLOCK: Final = frozenset({"flow_id", "ns"})
"""Arguments that a block sets itself: its methods act on its own flow, whatever a caller passes."""


class RecordedParameter(WireShape):
    """Any value that a flow records, sent as tagged JSON: the server records it without loading its class."""

    def load(self, data: Any, at: str) -> TaggedJson:
        """See WireShape."""
        return typed_json.tagged(data, at or "the value")

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        return {}


class RecordedAnswer(WireShape):
    """Any value that a flow recorded, answered as tagged JSON: the caller has its class."""

    def load(self, data: Any, at: str) -> Any:
        """See WireShape."""
        return typed_json.decode(shape(Any).load(data, at))

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        return {}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a method."""

    name: str
    shape: WireShape
    required: bool
    default: Any = None
    many: bool = False
    """Whether it takes any number, one after the other."""
    positional: bool = False
    """Whether Python takes it by position too; on the command line it is then an argument, not an option."""
    description: str = ""
    words: tuple[str, ...] = ()
    """The words it takes, where it takes a few only."""
    bounds: tuple[int, int] | None = None
    """The least and the most it takes, where that is known."""

    @property
    def offered(self) -> bool:
        """Whether a remote caller may pass it."""
        return not self.shape.local and (not self.shape.callback or self.name in CALLED_BACK)

    @property
    def names_caller(self) -> bool:
        """Whether it names the caller; `by` of a few words says what is counted together."""
        return self.name in SIGNED_BY_CALLER and not self.words

    def dump(self, value: Any) -> Any:
        """Return a value as it is sent."""
        return typed_json.encode(value, self.name) if isinstance(self.shape, RecordedParameter) else dump(value)

    def schema(self, named: Named) -> Schema:
        """Return the JSON Schema of its values."""
        one = self.shape.schema(named)
        whole: Schema = {"type": "array", "items": one} if self.many else dict(one)
        if not self.required and not self.many and self.default is not None and not self.shape.callback:
            whole["default"] = dump(self.default)
        if self.words:
            # Beside null, the words stand in the branch that is a text.
            texts = next((each for each in whole.get("anyOf", ()) if each.get("type") == "string"), whole)
            texts["enum"] = list(self.words)
        if self.bounds is not None and whole.get("type") == "integer":
            whole["minimum"], whole["maximum"] = self.bounds
        # Beside a reference, older readers of schemas ignore every other keyword.
        if self.description and "$ref" not in whole:
            whole.setdefault("description", self.description)
        return whole


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One method of one resource."""

    resource: str
    method: str
    reads: bool
    """Whether it changes nothing."""
    streams: bool
    """Whether it answers item by item."""
    secret: bool
    """Whether it returns a secret, which is shown once and stored nowhere."""
    parameters: tuple[Parameter, ...]
    answer: WireShape
    summary: str
    signature: inspect.Signature
    exposure: Exposure = field(default_factory=Exposure)
    grantable: bool = False
    """Whether a token that grants the resource to an agent grants this method."""

    @property
    def plain_query(self) -> bool:
        """Whether a query string can express all that it requires: then it is a GET request.

        What a query string cannot express is optional then, and goes by POST.
        """
        offered = [each for each in self.parameters if each.offered]
        return self.reads and not self.streams and all(each.shape.scalar or not each.required for each in offered)

    @property
    def waits(self) -> bool:
        """Whether it waits for others, for ever unless its caller says how long."""
        timeout = self.parameter("timeout_s")
        return timeout is not None and timeout.default is None

    @property
    def name(self) -> str:
        """The name of the operation, and of the tool unless the declaration names it otherwise."""
        return f"{self.resource}_{self.method}"

    @property
    def remote(self) -> bool:
        """Whether remote clients are offered the method."""
        return not self.exposure.local and all(each.offered or not each.required for each in self.parameters)

    @property
    def callbacks(self) -> tuple[str, ...]:
        """The parameters that are functions of the caller."""
        return tuple(each.name for each in self.parameters if each.shape.callback and each.offered)

    def arguments(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Turn arguments by name into those by position and those by keyword."""
        # Only `*args` need a position; everything else can be passed by keyword.
        several = [each.name for each in self.parameters if each.many]
        args = tuple(item for name in several for item in values.get(name, ()))
        return args, {name: value for name, value in values.items() if name not in several}

    def parameter(self, name: str) -> Parameter | None:
        """Return one parameter by its name."""
        return next((each for each in self.parameters if each.name == name), None)

    def schema(self, named: Named, *, callbacks: bool = False) -> Schema:
        """Return the JSON Schema of everything a remote caller may pass, as one object."""
        offered = [each for each in self.parameters if each.offered and (callbacks or not each.shape.callback)]
        return {
            "type": "object",
            "properties": {each.name: each.schema(named) for each in offered},
            "required": [each.name for each in offered if each.required],
            "additionalProperties": False,
        }


@cache
def entries() -> Mapping[tuple[str, str], MethodSpec]:
    """Return every method that remote clients are offered, by resource and method."""
    return {name: spec for name, spec in methods().items() if spec.remote}


@cache
def methods() -> Mapping[tuple[str, str], MethodSpec]:
    """Return every method of a store, by resource and method."""
    specs = (spec for name, resource in declared_resources() for spec in _specs(name, resource))
    return {(spec.resource, spec.method): spec for spec in specs}


def resource_methods(name: str) -> Mapping[str, MethodSpec]:
    """Return the methods of one resource without looking at any other; none where there is no such resource."""
    resource = vars(Resources(None)).get(name)  # type: ignore[type-var]
    if not isinstance(resource, Resource):
        return {}
    return {spec.method: spec for spec in _specs(name, resource)}


def method_spec(resource: str, method: str) -> MethodSpec:
    """Return one method of a resource; no module of another method is imported for it. KeyError where it is none."""
    owner = vars(Resources(None))[resource]  # type: ignore[type-var]
    return _spec(resource, method, inspect.getattr_static(owner.kind, method), grantable=owner.grantable)


@cache
def block_methods(block: BlockName) -> Mapping[str, MethodSpec]:
    """Return the methods that remote clients are offered inside a block.

    One that calls a function of the caller, a flow's `step`, is left out: most of what it takes is for that function.
    """
    specs: dict[str, MethodSpec] = {}
    for method, declaration in inspect.getmembers_static(_declaring(block)):
        if isinstance(declaration, Method) and not declaration.calls:
            spec = _spec(block, method, declaration, grantable=False)
            like = declaration.exposure.like
            specs[method] = spec if like is None else _with_options(spec, entries()[like])
    return {method: spec for method, spec in specs.items() if spec.remote}


def _declaring(block: BlockName) -> type[Resource[Any]]:
    """Return the class that declares the methods inside a block."""
    return flow_block.OpenFlow if block == "flow" else relational.Transaction


def _with_options(spec: MethodSpec, like: MethodSpec) -> MethodSpec:
    """Return a block's method with the parameters of the method that it is like in place of its `**options`."""
    if all(each.kind is not each.VAR_KEYWORD for each in spec.signature.parameters.values()):
        return spec
    own = [each for each in spec.signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    names = frozenset(each.name for each in own)
    options = [each for each in like.parameters if each.name not in names | SET_BY_BLOCK]
    keywords = [like.signature.parameters[each.name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    return replace(
        spec,
        parameters=(*(each for each in spec.parameters if each.name in names), *options),
        signature=spec.signature.replace(parameters=[*own, *keywords]),
    )


@cache
def without_namespaces() -> frozenset[str]:
    """Return the resources that no namespace divides."""
    return frozenset(name for name, each in _declared() if not each.namespaced)


def _declared() -> Iterable[tuple[str, Resource[Any]]]:
    # Without an executor: nothing is called, only declarations are read.
    for name, each in sorted(vars(Resources(None)).items()):  # type: ignore[type-var]
        if isinstance(each, Resource):
            yield name, each


def declared_resources() -> Iterable[tuple[str, Resource[Any]]]:
    """Yield every resource of a store by name, except those whose extra is not installed."""
    for name, resource in _declared():
        try:
            _ = resource.kind  # imports the module of a lazy resource
        except MissingExtraError:  # it cannot be offered here
            continue
        yield name, resource


def _specs(name: str, resource: Resource[Any]) -> Iterable[MethodSpec]:
    for method, declaration in inspect.getmembers_static(resource.kind):
        if isinstance(declaration, Method):
            yield _spec(name, method, declaration, grantable=resource.grantable)


def _spec(resource: str, name: str, method: Method[Any, Any], *, grantable: bool) -> MethodSpec:
    hints = get_type_hints(method.fn)
    whole = inspect.signature(method.fn)
    own = list(whole.parameters.values())[method.hidden :]
    described = {**PARAMETERS, **method.exposure.parameters}
    words = method.exposure.words
    bounds = {"limit": (1, MOST_PAGE), **method.exposure.bounds}
    return MethodSpec(
        resource=resource,
        method=name,
        reads=method.reads,
        streams=isinstance(method, StreamsWith),
        secret=method.secret,
        parameters=tuple(
            replace(
                _parameter(each, hints.get(each.name, Any), described.get(each.name, ""), words.get(each.name, ())),
                bounds=bounds.get(each.name),
            )
            for each in own
        ),
        answer=_answer_shape(hints.get("return", Any)),
        summary=" ".join((method.fn.__doc__ or "").split("\n\n")[0].split()),
        signature=whole.replace(parameters=own, return_annotation=whole.empty),
        exposure=method.exposure,
        grantable=grantable and method.exposure.grantable,
    )


def _parameter(parameter: inspect.Parameter, hint: Any, description: str, words: tuple[str, ...]) -> Parameter:
    many = parameter.kind is parameter.VAR_POSITIONAL
    required = parameter.default is parameter.empty and not many
    return Parameter(
        parameter.name,
        RecordedParameter() if hint is Recordable else shape(hint),
        required,
        None if required or many else parameter.default,
        many,
        many or parameter.kind is not parameter.KEYWORD_ONLY,
        description,
        words,
    )


def _answer_shape(hint: Any) -> WireShape:
    kind = _answer(hint)
    return RecordedAnswer() if kind is Recordable else shape(kind)


def _answer(hint: Any) -> Any:
    """Return the type of what the caller gets: the result of work, an item of a stream, what was not refused."""
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Generator:
        gives = [each for each in get_args(parts[0]) if get_origin(each) is Give]
        return get_args(gives[0])[0] if gives else _answer(parts[2])
    if origin in (Future, Callable):  # a callable is a function of a transaction, made ready
        return _answer(parts[-1])
    if origin in (Union, UnionType):
        accepted = tuple(each for each in parts if each is not Refused)
        return Union[accepted]  # noqa: UP007 (made at run time)
    return hint
