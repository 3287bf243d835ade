"""Limits of tenants: one declaration per method."""

from typing import TYPE_CHECKING, Final

from holdproof.executors import Executor, Reads, Resource, RunsWith, Writes
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.upkeep import limits
else:
    globals().update(lazy_functions("holdproof.upkeep", "limits"))

_TENANT: Final = {"tenant": "The namespace that the limits are for."}
_NUMBERS: Final = {
    **_TENANT,
    "open_flows": "How many of its flows may be open at once.",
    "open_escalations": "How many requests of its agents may wait for a person at once.",
    "open_streams": "How many streams of its flows may be open at once.",
    "objects": "How many objects it may keep in memory.",
    "entries_per_minute": "How many entries of the log it may make in each minute of the clock.",
    "bytes": "How many bytes it may record, from its first limit on.",
}


class LimitsResource(Resource[Executor]):
    """What namespaces may use: flows, requests, objects, entries, bytes; root says it."""

    group = "Operate"

    set = RunsWith(limits.set, parameters=_NUMBERS, example="acme --open-flows 100 --reason 'the plan they pay for'")
    lift = RunsWith(limits.lift, parameters=_TENANT, example="acme --reason 'moved to a store of their own'")
    draft = RunsWith(
        limits.draft,
        parameters=_NUMBERS,
        example="acme --open-flows 100 --reason 'the plan they pay for' --out draft.json",
        document="text",
        note=lambda _: "root signs it: holdproof keys sign draft.json --recovery FILE --out limits.json",
    )
    import_limits = Writes(limits.import_limits, files=("text",), example="limits.json")
    get = Reads(limits.get, example="--ns acme")
    list = Reads(limits.list, columns=("ns", "limits", "usage", "reached", "set_at"))
