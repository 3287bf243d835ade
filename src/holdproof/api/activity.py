"""How much happened: one declaration per method."""

from typing import TYPE_CHECKING

from holdproof.executors import Executor, Reads, Resource
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.runtime import activity
else:
    globals().update(lazy_functions("holdproof.runtime", "activity"))


class Activity(Resource[Executor]):
    """How much happened: flows, escalations and answers, by hour, day or agent."""

    group = "Inspect"

    stats = Reads(
        activity.stats,
        columns=(
            "bucket",
            "agent_id",
            "started",
            "completed",
            "failed",
            "cancelled",
            "escalations",
            "answers",
            "expired",
        ),
        words={"by": ("hour", "day", "all")},
        parameters={
            "by": "What is counted together: hour, day, or all of the range.",
            "by_agent": "Count each agent by itself.",
        },
        example="--by day --since 2026-01-01T00:00:00Z",
    )
    answer_times = Reads(activity.answer_times, example="--since 2026-01-01T00:00:00Z")
