"""Methods of memory that note, inside a step of a flow, what the step uses; elsewhere they are the plain ones.

A note needs a transaction that writes, so a read inside a step becomes one. The flow is looked up at the call, on the
caller's thread: the transaction runs on another, which knows nothing of flows.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdproof.db import Flows, Tx, Work, Write, ask
from holdproof.errors import NotFoundError
from holdproof.executors import Reads, RunsWith, Writes
from holdproof.lazy import lazy_module
from holdproof.model.namespaces import MAIN

if TYPE_CHECKING:
    from holdproof.memory.objects import objects
    from holdproof.model import memory, skills
    from holdproof.upkeep import material_notes
else:
    objects = lazy_module("holdproof.memory.objects.objects")
    memory = lazy_module("holdproof.model.memory")
    skills = lazy_module("holdproof.model.skills")
    material_notes = lazy_module("holdproof.upkeep.material_notes")

P = ParamSpec("P")
T = TypeVar("T")


class NotedReads(Reads[P, T]):
    """A method that reads objects, which the flow of the step it is called in has used."""

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call reads one snapshot, and notes what it read."""
        fn = self.scoped(resource)
        executor = resource._executor
        plain = super().bind(resource)

        def call(*args: Any, **kwargs: Any) -> Any:
            flows = material_notes.flows_in_steps()
            if not flows:
                return plain(*args, **kwargs)

            def noting(tx: Tx) -> Any:
                value = fn(tx, *args, **kwargs)
                material_notes.note_read(tx, flows, value, ns=_ns(resource, kwargs), at=kwargs.get("at"))
                return value

            return executor.write(noting)

        return call


class NotedWrites(Writes[P, T]):
    """A method that puts or deletes objects: one that is named first, or those that a mapping names."""

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call is a writing transaction, which notes what it wrote."""
        fn = self.scoped(resource)
        write = resource._executor.write

        def call(*args: Any, **kwargs: Any) -> Any:
            flows = material_notes.flows_in_steps()
            if not flows:
                return write(lambda tx: fn(tx, *args, **kwargs))

            def noting(tx: Tx) -> Any:
                value = fn(tx, *args, **kwargs)
                # False: there was nothing to delete.
                if value is not False:
                    ns = _ns(resource, kwargs)
                    subject = args[0] if args else next(kwargs[name] for name in ("id", "changes") if name in kwargs)
                    ids = list(subject) if isinstance(subject, Mapping) else [subject]
                    material_notes.note_written(tx, flows, {id: _found(tx, id, ns) for id in ids}, ns=ns)
                return value

            return write(noting)

        return call


class NotedRuns(RunsWith[P, T]):
    """A method that spans transactions, and gives objects or a skill."""

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call drives the work to its end, and notes what it gave."""
        fn = self.scoped(resource)
        run = resource._executor.run

        def call(*args: Any, **kwargs: Any) -> Any:
            work = fn(resource.held, *args, **kwargs)
            flows = material_notes.flows_in_steps()
            return run(_noting(work, flows, _ns(resource, kwargs)) if flows else work)

        return self.checked(resource, call)


def _noting(work: Work[Any], flows: Flows, ns: str) -> Work[Any]:
    value = yield from work
    if isinstance(value, skills.LoadedSkill):
        yield from ask(Write(partial(material_notes.note_loaded, flows=flows, skill=value)))
    else:
        yield from ask(Write(partial(material_notes.note_read, flows=flows, value=value, ns=ns)))
    return value


def _found(tx: Tx, id: str, ns: str) -> "memory.Object | None":
    """Return an object as it is now, None where it was deleted."""
    try:
        return objects.get(tx, id, ns=ns)
    except NotFoundError:
        return None


def _ns(resource: Any, kwargs: dict[str, Any]) -> str:
    """Return the namespace that a call works in."""
    return str(kwargs.get("ns") or resource.ns or MAIN)
