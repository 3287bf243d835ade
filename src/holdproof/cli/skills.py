"""`holdproof skills`: files that agents act by, approved and loaded only as they were approved."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from holdproof.cli import draw
from holdproof.cli.call import After, Call, Limit, Namespace, command, items, options
from holdproof.cli.render import words
from holdproof.errors import SkillLockedError
from holdproof.model.skills import Approval, Fingerprint, LoadedSkill, Skill, SkillState

app = typer.Typer(
    help="Approve skill files, and load them only as they were approved.",
    epilog="Example: holdproof skills approve skills/deploy.org --by ada",
    no_args_is_help=True,
)
app.callback()(options)

PathOf = Annotated[str, typer.Argument(metavar="PATH", help="The skill file.")]
Paths = Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", help="Skill files; without any, all listed.")]
By = Annotated[str, typer.Option("--by", help="Who says so.")]
Comment = Annotated[str, typer.Option("--comment", help="Why, in a sentence.")]


def _table(value: draw.Facts) -> Text:
    """Skills with the root that was approved, and why the others are locked."""
    lines = [
        {
            "path": each["path"],
            "state": each["state"],
            "root": (each["approval"] or {}).get("root", "")[:16],
            "approved_by": (each["approval"] or {}).get("approved_by", ""),
            "why": (each["lockdown"] or {}).get("reason", each["flaw"]),
        }
        for each in value["skills"]
    ]
    return draw.rows("skills", "path", "state", "root", "approved_by", "why")({**value, "skills": lines})


def _worst(page: dict[str, Any]) -> int:
    """0 if all is well, else as a refused load."""
    fine = all(each["state"] == SkillState.APPROVED for each in page["skills"])
    return 0 if fine else SkillLockedError.exit_code


@command(app, example="holdproof skills fingerprint skills/deploy.org")
def fingerprint(call: Call, path: PathOf) -> Fingerprint:
    """Show the blocks of a file and its root, before it is approved; nothing is recorded."""
    with call.open() as store:
        return store.skills.fingerprint(path)


@command(app, example="holdproof skills approve skills/deploy.org --by ada --comment reviewed")
def approve(
    call: Call,
    *,
    path: PathOf,
    by: By,
    comment: Comment = "",
    root: Annotated[str | None, typer.Option("--root", help="Only if the file has this root.")] = None,
    ns: Namespace = "main",
) -> Approval:
    """Approve a file as it is now; ends the lockdown of its skill."""
    with call.open() as store:
        return store.skills.approve(path, by=by, comment=comment, root=root, ns=ns)


@command(app, example="holdproof skills revoke skills/deploy.org --by ada --comment outdated")
def revoke(call: Call, path: PathOf, by: By, comment: Comment = "", ns: Namespace = "main") -> Approval:
    """Take an approval back: the skill is not loaded any more."""
    with call.open() as store:
        return store.skills.revoke(path, by=by, comment=comment, ns=ns)


@command(app, example="holdproof skills load skills/deploy.org --json", draw=lambda value: Text(words(value["text"])))
def load(call: Call, path: PathOf, ns: Namespace = "main") -> LoadedSkill:
    """Show a skill if it is the approved one; exits with 5, and locks it, if it is not."""
    with call.open() as store:
        return store.skills.load(path, ns=ns)


@command(app, example="holdproof skills verify --json", exit_code=_worst, draw=_table)
def verify(
    call: Call,
    paths: Paths = None,
    no_lock: Annotated[bool, typer.Option("--no-lock", help="Only report; lock nothing.")] = False,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Compare files with what was approved; exits with 5 if one is not the approved one."""
    with call.open() as store:
        return items("skills", store.skills.verify(*(paths or ()), lock=not no_lock, ns=ns))


@command(app, example="holdproof skills status skills/deploy.org")
def status(call: Call, path: PathOf, ns: Namespace = "main") -> Skill:
    """Show what was said of a skill last, and why it is locked; its file is not looked at."""
    with call.open() as store:
        return store.skills.status(path, ns=ns)


@command(app, example="holdproof skills list", draw=_table)
def list(call: Call, after: After = "", limit: Limit = 100, ns: Namespace = "main") -> dict[str, Any]:
    """List skills by path, a page at a time."""
    with call.open() as store:
        return items("skills", store.skills.list(cursor=after or None, limit=limit, ns=ns))


@command(app, example="holdproof skills watch --every 2 --json")
def watch(
    call: Call,
    paths: Paths = None,
    every: Annotated[float, typer.Option("--every", help="How many seconds between two looks.")] = 2.0,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Stop after so many looks.")] = None,
    ns: Namespace = "main",
) -> Iterator[Skill]:
    """Verify again and again; prints each skill that changes, with --json one document a line."""
    with call.open() as store:
        yield from store.skills.watch(*(paths or ()), every_s=every, rounds=rounds, ns=ns)
