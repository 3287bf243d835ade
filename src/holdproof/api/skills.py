"""The noun of skills."""

from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith
from holdproof.executors.exit_codes import exit_skills
from holdproof.memory.skills import skills as files
from holdproof.upkeep import skill_watch


class Skills(Resource[Executor]):
    """Files that agents act by: only what was approved is loaded, and only as it was approved."""

    group = "Approve"
    grantable = True

    fingerprint = Runs(files.fingerprint, local=True, example="skills/deploy.org")
    approve = RunsWith(
        skill_watch.approve, grantable=False, local=True, example="skills/deploy.org --by ada --comment reviewed"
    )
    revoke = RunsWith(skill_watch.revoke, grantable=False, example="skills/deploy.org --by ada --comment outdated")
    load = RunsWith(skill_watch.load, local=True, document="text", example="skills/deploy.org --json")
    verify = RunsWith(skill_watch.verify, grantable=False, draw="skills", example="--json", exit_code=exit_skills)
    watch = StreamsWith(skill_watch.watch, local=True, example="--every-s 2 --json")
    status = Reads(files.status, grantable=False, example="skills/deploy.org")
    list = Reads(files.list, draw="skills")
