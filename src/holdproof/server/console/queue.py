"""What waits for a person, narrowed by facets: mine, unassigned, by agent, type of flow, impact and deadline.

Rules:
- A facet is a link; the choice stands in the address, so that it can be kept and sent.
- Behind each facet stands how many there are of it, whatever else is chosen.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from holdproof.errors import InvalidInputError
from holdproof.model.approvals import parse_approvers
from holdproof.model.coordination import Escalation, EscalationFacet
from holdproof.model.page import Page
from holdproof.model.times import END, later
from holdproof.server.console.desk import Desk, or_default

_NAMES: Final = ("who", "agent", "type", "impact", "due", "cursor")
_DUE_S: Final = {"1h": 3600.0, "15min": 900.0}
_LONGEST: Final = 500
_MOST_OPTIONS: Final = 8
_PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class InboxFacets:
    """What of the inbox is looked at."""

    chosen: Mapping[str, str]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "InboxFacets":
        """Read the facets of an address; what is no facet is left out."""
        return cls({name: query[name][:_LONGEST] for name in _NAMES if query.get(name)})

    @property
    def query(self) -> str:
        """The facets as the end of an address."""
        return f"?{urlencode(dict(self.chosen))}" if self.chosen else ""

    def toggled(self, name: str, value: str) -> str:
        """The end of an address with one facet chosen, or let go where it was chosen already."""
        rest = {key: each for key, each in self.chosen.items() if key not in (name, "cursor")}
        if self.chosen.get(name) != value:
            rest[name] = value
        return f"?{urlencode(rest)}" if rest else "?"


@dataclass(frozen=True, slots=True)
class FacetOption:
    """One facet as a link, and how many there are of it."""

    name: str
    value: str
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """A page of what waits, and the facets to narrow it by."""

    facets: InboxFacets
    page: Page[Escalation]
    options: tuple[FacetOption, ...]
    total: int

    def beside(self, id: int, step: int) -> int | None:
        """The id of the next (`1`) or previous (`-1`) one of the list."""
        ids = [each.id for each in self.page.items]
        if id not in ids:
            return ids[0] if ids else None
        at = ids.index(id) + step
        return ids[at] if 0 <= at < len(ids) else None


async def read_queue(desk: Desk, facets: InboxFacets, *, limit: int = _PAGE) -> WaitingPage:
    """Read what waits, as far as the facets let through, the most urgent first."""
    chosen = facets.chosen
    counts = await desk.store.escalations.facets()
    groups = await _groups(desk)
    filters: dict[str, Any] = {
        "agent_id": chosen.get("agent"),
        "flow_type": chosen.get("type"),
        "impact": chosen.get("impact"),
        "due_before": later(desk.now, _DUE_S[chosen["due"]]) if chosen.get("due") in _DUE_S else END,
    }
    if chosen.get("who") == "mine":
        filters["approvers"] = _mine(counts, desk.caller.name, groups)
    elif chosen.get("who") == "anybody":
        filters["approvers"] = [""]
    page = await desk.store.escalations.list(
        status="PENDING", order="due", cursor=chosen.get("cursor"), limit=limit, **filters
    )
    options = tuple(_options(counts, desk.caller.name, groups))
    return WaitingPage(facets, page, options, sum(each.count for each in counts))


async def _groups(desk: Desk) -> frozenset[str]:
    """The groups that the caller answers for."""
    person = await or_default(desk.store.people.get(desk.caller.name)) if desk.may("people", "get") else None
    return frozenset(() if person is None else person.groups)


def _mine(counts: Iterable[EscalationFacet], name: str, groups: frozenset[str]) -> list[str]:
    """The lines of approvers that name somebody, or a group of theirs."""
    return [line for line in {each.approvers for each in counts} if _names(line) & {name, *groups}]


def _names(line: str) -> frozenset[str]:
    try:
        return frozenset(parse_approvers(line).names) if line else frozenset()
    except InvalidInputError:  # rows of other programs may say anything
        return frozenset()


def _options(counts: Iterable[EscalationFacet], name: str, groups: frozenset[str]) -> Iterable[FacetOption]:
    counts = [*counts]
    mine = set(_mine(counts, name, groups))
    yield FacetOption("who", "mine", "mine", sum(each.count for each in counts if each.approvers in mine))
    yield FacetOption("who", "anybody", "unassigned", sum(each.count for each in counts if not each.approvers))
    yield FacetOption("due", "1h", "due within 1 h", sum(each.due for each in counts))
    yield from _by("impact", ((each.impact, each.count) for each in counts))
    yield from _by("agent", ((each.agent_id, each.count) for each in counts))
    yield from _by("type", ((each.flow_type, each.count) for each in counts))


def _by(name: str, pairs: Iterable[tuple[str, int]]) -> Iterable[FacetOption]:
    totals: Counter[str] = Counter()
    for value, count in pairs:
        totals[value] += count
    # One value only narrows nothing.
    if len(totals) > 1 or name == "impact":
        for value, count in totals.most_common(_MOST_OPTIONS):
            yield FacetOption(name, value, value.replace("_", " ").lower() if name == "impact" else value, count)
