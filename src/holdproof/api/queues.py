"""Queues of flows, schedules that fill them, and the workers that run them."""

from typing import TYPE_CHECKING, Final

from holdproof.executors import Executor, Reads, Resource, Runs, Writes
from holdproof.executors.exit_codes import exit_absent
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.runtime import queues, schedules, workers
else:
    globals().update(lazy_functions("holdproof.runtime", "queues schedules workers"))

_SCHEDULE: Final = {
    "function": "The registered function, by its name.",
    "version": "The version of the function.",
    "agent_id": "The agent whose flows these are; that of the function by default.",
    "paused": "Whether it is paused.",
}


class Queues(Resource[Executor]):
    """Limits of queues: how many of their flows run at once, and how often one is started."""

    group = "Run"

    create = Writes(
        queues.create, example="payments --concurrency 10 --rate-limit 100 --rate-period-s 60", creates=True
    )
    get = Reads(queues.get, example="payments")
    list = Reads(
        queues.list,
        columns=(
            *("name", "concurrency", "worker_concurrency", "partition_concurrency", "rate_limit", "rate_period_s"),
            "paused",
        ),
    )
    lengths = Reads(queues.lengths, columns=("queue", "due", "running", "waiting"))
    update = Writes(queues.update, example="payments --concurrency 20")
    pause = Writes(queues.pause, example="payments")
    resume = Writes(queues.resume, example="payments")
    delete = Writes(queues.delete, example="payments")


class Workers(Resource[Executor]):
    """Processes that run queued and recovered flows."""

    group = "Run"

    list = Reads(
        workers.list,
        columns=("name", "state", "host", "pid", "running", "concurrency", "queues", "heartbeat_at"),
    )


class Schedules(Resource[Executor]):
    """Registered functions that are run by the clock."""

    group = "Run"

    create = Writes(
        schedules.create,
        creates=True,
        example="nightly refund --agent-id buyer --cron '0 3 * * *' --timezone Europe/Berlin --args '[\"o-17\"]'",
        parameters=_SCHEDULE,
    )
    get = Reads(schedules.get, example="nightly")
    list = Reads(
        schedules.list,
        columns=("name", "cron", "timezone", "function", "function_version", "next_at", "paused", "fired_until"),
        example="--function refund",
        parameters=_SCHEDULE,
    )
    update = Writes(schedules.update, example="nightly --cron '0 4 * * *'", parameters=_SCHEDULE)
    pause = Writes(schedules.pause, example="nightly")
    resume = Writes(schedules.resume, example="nightly")
    trigger = Writes(schedules.trigger, example="nightly")
    backfill = Runs(
        schedules.backfill,
        example="nightly 2026-01-01T00:00:00Z 2026-02-01T00:00:00Z",
        parameters={"start": "From this moment on.", "end": "Before this moment, which is not in the future."},
    )
    delete = Writes(schedules.delete, example="nightly", exit_code=exit_absent)
    fire = Runs(schedules.fire_due)
