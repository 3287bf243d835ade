"""What services store, looked at by `verify`.

Rules:
- Their database files are whole, and every blob is what its row says.
- None of it is under the log: what is wrong there counts, but it does not lock the kernel.
- What nobody has used is not made for the look at it; what cannot be opened is told as not checked.
"""

from contextlib import closing
from pathlib import Path

from holdproof.db import Work, call
from holdproof.db.sqlite import check_file
from holdproof.errors import HoldproofError
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.storage.executors import SyncStorageExecutor
from holdproof.storage.open_stores import OpenStores
from holdproof.store.context import Context
from holdproof.upkeep.verification.findings import RESTORE, Findings


def check(context: Context, findings: Findings) -> Work[None]:
    """Look at the files of services, then at every blob."""
    if context.head_file is None:  # in memory, as they are
        return
    for path in (context.paths.membrane_db, context.paths.telemetry_db):
        for problem in (yield from call(_problems, path)):
            what = f"integrity check: {problem}"
            findings.add(Finding(Verdict.TAMPERED, what, RESTORE, file=str(path), outside=True))
    for finding in (yield from call(_blobs, context, findings)):
        findings.add(finding)


def _problems(path: Path) -> list[str]:
    return check_file(path) if path.exists() else []


def _blobs(context: Context, report: Findings) -> list[Finding]:
    def tell(done: int) -> None:
        report.checked["blobs"] = done
        report.tell("blobs", done)

    with closing(OpenStores(context.settings, context.paths, SyncStorageExecutor)) as stores:
        try:
            blobs = stores.open("blobs") if stores.exists("blobs") else None
        except HoldproofError as error:
            report.skip(f"blobs, which cannot be opened: {error.message}")
            return []
        wrong: list[Finding] = blobs.check(progress=tell) if blobs is not None else []
        return wrong
