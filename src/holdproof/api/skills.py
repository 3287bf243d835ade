"""The noun of skills."""

from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith
from holdproof.memory.skills import skills as files
from holdproof.upkeep import skill_watch


class Skills(Resource[Executor]):
    """Files that agents act by: only what was approved is loaded, and only as it was approved."""

    fingerprint = Runs(files.fingerprint)
    approve = RunsWith(skill_watch.approve)
    revoke = RunsWith(skill_watch.revoke)
    load = RunsWith(skill_watch.load)
    verify = RunsWith(skill_watch.verify)
    watch = StreamsWith(skill_watch.watch)
    status = Reads(files.status)
    list = Reads(files.list)
