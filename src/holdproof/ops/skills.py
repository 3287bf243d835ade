"""The noun of skills."""

from holdproof.faces import Face, Noun, Reads, Runs, RunsWith, StreamsWith
from holdproof.memory import skills as files
from holdproof.upkeep import skills


class Skills(Noun[Face]):
    """Files that agents act by: only what was approved is loaded, and only as it was approved."""

    fingerprint = Runs(files.fingerprint)
    approve = RunsWith(skills.approve)
    revoke = RunsWith(skills.revoke)
    load = RunsWith(skills.load)
    verify = RunsWith(skills.verify)
    watch = StreamsWith(skills.watch)
    status = Reads(files.status)
    list = Reads(files.list)
