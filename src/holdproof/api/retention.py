"""Retention: what has had its time, removed or archived, and the rules about what has to stay."""

from typing import TYPE_CHECKING

from holdproof.executors import Executor, Reads, Resource, RunsWith, Writes
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.evidence import archives
    from holdproof.model.retention import MonthArchived
    from holdproof.upkeep import archiving, holds, retention
else:
    globals().update(lazy_functions("holdproof.evidence", "archives"))
    globals().update(lazy_functions("holdproof.upkeep", "archiving holds retention"))


def _how_to_check(archived: "MonthArchived") -> str:
    """Say how anybody checks what was archived."""
    return "\nnote: ".join(f"check it anywhere: holdproof verify {each.place}" for each in archived.archives)


class RetentionResource(Resource[Executor]):
    """What has had its time, removed; every proof stays whole."""

    group = "Operate"

    prune = RunsWith(retention.prune, example="flows --older-than-days 90 --keep 1000 --dry-run")
    gc = RunsWith(retention.gc, example="--dry-run")
    compact = RunsWith(retention.compact)
    list = Reads(retention.list, columns=("pruned_at", "what", "count", "who", "rule"))
    archive = RunsWith(
        archiving.archive,
        parameters={
            "what": "What is archived: audit.",
            "month": "The month, in UTC; it has to be over.",
            "to": "The folder that the archive's own folder is made in, or s3://bucket/folder.",
        },
        words={"what": ("audit",)},
        example="audit --month 2026-01 --to /mnt/archive",
        note=_how_to_check,
    )
    archives = Reads(archives.list, columns=("archived_at", "what", "month", "count", "place"))
    hold = RunsWith(holds.hold, example="--flow-id order-1 --reason 'case 4711'")
    floor = RunsWith(
        holds.floor,
        parameters={"days": "For how many days records stay at least."},
        example="183 --what flows --reason 'logs are kept for six months'",
    )
    lift = RunsWith(holds.lift, example="0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97 --reason 'the case is closed'")
    draft = RunsWith(
        holds.draft,
        parameters={"action": "floor, hold or lift.", "days": "Of a floor: for how many days records stay at least."},
        example="hold --subject 'Ada Lovelace' --reason 'case 4711' --out draft.json",
        document="text",
        note=lambda _: "root signs it: holdproof keys sign draft.json --recovery FILE --out rule.json",
    )
    import_rule = Writes(holds.import_rule, files=("text",), example="rule.json")
    rules = Reads(holds.rules, columns=("id", "kind", "scope", "target", "days", "reason", "set_at", "lifted_at"))
