"""Queues of flows, and the workers that run them."""

from holdproof.executors import Executor, Reads, Resource, Writes
from holdproof.runtime import queues, workers


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
