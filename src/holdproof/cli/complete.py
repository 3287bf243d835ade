"""Completion of ids on the command line, out of the file of the store, which is read and never opened.

Rules:
- A look costs one query of a few rows, and changes nothing: no store is made, none is migrated.
- A store on a server is not asked: a shell that waits for a network at every Tab is worse than none.
- Whatever goes wrong, nothing is offered.
"""

from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from holdproof.cli.call import CommandContext
from holdproof.config import Paths, load
from holdproof.db import Query, sql
from holdproof.db.sqlite import snapshot
from holdproof.errors import HoldproofError
from holdproof.model.visible_text import visible

_MOST: Final = 20
"""How many are offered: more would not fit a screen."""

# Two namespaces may have the same id: it is offered once.
_FLOWS = sql(
    "SELECT dfid, min(status) FROM decision_flows WHERE dfid LIKE :like GROUP BY dfid ORDER BY dfid DESC LIMIT :most"
)
_AGENTS = sql(
    "SELECT agent_id, min(status) FROM agent_registry WHERE agent_id LIKE :like GROUP BY agent_id"
    " ORDER BY agent_id LIMIT :most"
)
_ESCALATIONS = sql(
    # Of a person's flow the reason is sealed, and no help.
    "SELECT CAST(id AS TEXT), CASE WHEN reason LIKE '{\"$sealed\":%' THEN agent_id ELSE reason END"
    " FROM escalation_requests WHERE status = 'PENDING' AND CAST(id AS TEXT) LIKE :like ORDER BY id LIMIT :most"
)
_EVALUATIONS = sql("SELECT battle_id, timestamp FROM battles WHERE battle_id LIKE :like ORDER BY id DESC LIMIT :most")

Offer = Callable[[click.Context, click.Parameter | None, str], list[CompletionItem]]


def _offering(query: Query) -> Offer:
    def offer(ctx: click.Context, _: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
        try:
            home = _option(ctx, "shared_home")
            url = _option(ctx, "shared_url")
            if CommandContext(home, url, _option(ctx, "shared_server")).remote is not None:
                return []
            paths = Paths.find(home)
            if _is_elsewhere(paths, url):
                return []
            # What was typed is part of a LIKE pattern: its wildcards are dropped.
            plain = "".join(letter for letter in incomplete if letter not in "%_")
            with snapshot.view(paths.kernel_db) as tx:
                rows = tx.all(query, like=f"{plain}%", most=_MOST)
        except (HoldproofError, OSError):
            return []
        return [CompletionItem(str(name), help=visible(str(note)).partition("\n")[0]) for name, note in rows]

    return offer


def _is_elsewhere(paths: Paths, url: str | None) -> bool:
    return load(paths=paths, url=url).database_url is not None or not paths.kernel_db.exists()


def _option(ctx: Any, name: str) -> str | None:
    """Return an option wherever it stands; the one nearest to the end counts."""
    while ctx is not None:
        if (value := ctx.params.get(name)) is not None:
            return str(value)
        ctx = ctx.parent
    return None


flows = _offering(_FLOWS)
agents = _offering(_AGENTS)
escalations = _offering(_ESCALATIONS)
evaluations = _offering(_EVALUATIONS)

BY_PARAMETER: Final = {"flow_id": flows, "agent_id": agents, "evaluation_id": evaluations}
"""What is offered for a parameter of that name, in every method."""
BY_NAME: Final = {("escalations", "id"): escalations}
"""What is offered for a parameter of one resource."""
