"""Commands about the store as a whole: making it, checking it, moving it."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from rich.text import Text

from holdproof import config, config_trust, folders, sync
from holdproof.cli import draw
from holdproof.cli.bar import bar, spinner
from holdproof.cli.call import Argument, CommandContext, Option, ask_or_refuse, command
from holdproof.cli.files import read_bytes
from holdproof.cli.render import warn_outside, words
from holdproof.crypto import keys
from holdproof.db.backends import is_url
from holdproof.errors import InvalidInputError, MissingPrivilegeError, NotFoundError
from holdproof.lazy import lazy_module
from holdproof.model.backup import Drill, Restored, StartedOver
from holdproof.model.doctor import HealthReport
from holdproof.model.legacy import LegacyReport
from holdproof.model.status import Check, Migrated, Partitioned, Resealed, Roles, Status
from holdproof.model.transfer import Copied, Moved
from holdproof.model.verify import BundleReport, Report
from holdproof.store.opening import locate
from holdproof.urls import redact

if TYPE_CHECKING:
    from holdproof.crypto.keys import PublicKey
    from holdproof.upkeep.verification import archive_check, container, documents
else:
    archive_check = lazy_module("holdproof.upkeep.verification.archive_check")
    container = lazy_module("holdproof.upkeep.verification.container")
    documents = lazy_module("holdproof.upkeep.verification.documents")

COMMANDS: dict[str, click.Command] = {}

_UNSOUND: Final = 8
"""The exit code of a check that found something."""
_HEALTH_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "bold red"}
_OUTCOME_STYLES: Final = {"moved": "green", "would move": "cyan", "moved before": "dim"}
_SQLITE: Final = b"SQLite format 3\0"
_KERNEL: Final = "kernel.db"
_DATABASE: Final = "Check and migrate the database."


@command(COMMANDS, "init", example="holdproof init ./my-agent", group="Run", reach="anywhere")
def init(
    _: CommandContext, folder: Annotated[Path, Argument(help="The project's folder, here by default.")] = Path()
) -> dict[str, list[str]]:
    """Create .holdproof/config.yaml in a project; an existing one is left alone."""
    return {"created": [str(path) for path in config.init_project(folder)]}


@command(
    COMMANDS,
    "config allow",
    example="holdproof config allow",
    group="Run",
    reach="anywhere",
    group_summary="Settings of projects.",
)
def allow(
    call: CommandContext, folder: Annotated[Path, Argument(help="The project's folder, here by default.")] = Path()
) -> dict[str, str]:
    """Let a project's file name servers and use variables of the environment; read it first. A change ends that."""
    root = folders.find_project(folder)
    if root is None:
        raise NotFoundError(f"{folder.resolve()}: no project here or above; run `holdproof init`", path=str(folder))
    file = root / ".holdproof" / "config.yaml"
    config_trust.allow(config.Paths.find(call.home).allowed_projects, file)
    return {"allowed": str(file)}


@command(COMMANDS, "status", example="holdproof status --json", group="Inspect", reach="server", draw=draw.store_status)
def status(call: CommandContext) -> Status:
    """Show where data lives, what it runs on, its size, what services store, and whether anything is degraded."""
    with call.open(create=False) as store:
        # Measured here only: `store.status()` opens none of the stores of services.
        return replace(store.status(), storage=store.storage.status().to_dict())


def _health(value: dict[str, Any]) -> Text:
    text = Text()
    # Remedies are indented below what they belong to: level, two spaces, subject, two spaces.
    width = max(len(each["about"]) for each in value["checks"])
    for each in value["checks"]:
        text.append(f"{each['level']:<7}  ", style=_HEALTH_STYLES[each["level"]])
        text.append(f"{each['about']:<{width}}  {words(each['what'])}\n")
        if each["remedy"]:
            text.append(f"{'':<{width + 11}}{words(each['remedy'])}\n", style="dim")
    return text


@command(
    COMMANDS,
    "doctor",
    example="holdproof doctor --json",
    group="Operate",
    exit_code=lambda answer: 0 if answer.ok else _UNSOUND,
    draw=_health,
)
def doctor(call: CommandContext) -> HealthReport:
    """Look at disk, folders, keys, clock, log and flows, and say what to do; exits with 8 if anything is an error."""
    with spinner("looking"):
        return sync.doctor(call.home, call.url)


def _store_of(path: Path) -> str:
    """Return the folder of a store whose database was named; any other path as it is."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            if path.name != _KERNEL:
                raise InvalidInputError(
                    f"{path} is a database, but a store is a folder with its database as {_KERNEL}: verify that folder",
                    path=str(path),
                )
            return str(path.parent)
    return str(path)


def _trusted(root: Path | None) -> "PublicKey | None":
    """Return the root key of a file."""
    return None if root is None else keys.load_public_pem(read_bytes(root, 1 << 16))


def _is_document(path: Path) -> bool:
    """Whether this is no store: a path that leads nowhere is looked for as one, which says that there is none."""
    return not path.is_dir() or archive_check.is_archive(path)


def _check_document(path: Path, root: Path | None, attested: list[str] | None) -> BundleReport:
    """Check a file, or an archive; no store is opened: it must be checkable by somebody who has none."""
    trusted = _trusted(root)
    if path.is_dir():
        documents.refuse_attested(attested)
        return archive_check.check(path, root=trusted)
    data = read_bytes(path, container.MOST_BYTES + 1)
    return documents.check(data, root=trusted, attested=attested or ())


def _drawn_verification(value: Any) -> Text:
    return draw.verification(value, verbose=bool(click.get_current_context().params.get("verbose")))


@command(
    COMMANDS,
    "verify",
    example="holdproof verify --full --json",
    group="Prove",
    reach="server",
    exit_code=lambda answer: answer.verdict.exit_code,
    draw=_drawn_verification,
)
def verify(
    call: CommandContext,
    target: Annotated[
        str | None,
        Argument(help="A bundle, a certificate, an archive, a store's folder or a database's URL; else the store."),
    ] = None,
    *,
    full: Annotated[bool, Option("--full", help="Recompute the whole tree from its leaves.")] = False,
    since_last: Annotated[
        bool, Option("--since-last", help="Only what was written since the last report that found nothing; else all.")
    ] = False,
    lock: Annotated[
        bool, Option("--lock", help="Lock the store on tampering; write deleted DBOM files again; leave a report.")
    ] = False,
    root: Annotated[Path | None, Option("--root", help="The root's public key (PEM) you trust.")] = None,
    attested: Annotated[
        list[str] | None, Option("--attested", help="What a bundle must bring: `time` or `anchor`; may be repeated.")
    ] = None,
    verbose: Annotated[bool, Option("--verbose", help="Name what no entry of the log covers, and why.")] = False,
) -> Report | BundleReport:
    """Verify a store or a bundle, read-only; exits with 0, 10 unsigned, 11 unlogged, 12 revoked, 20 tampered."""
    del verbose  # for the drawing: --json has all of it
    url = target if target is not None and "://" in target else None
    if url is not None and url.startswith(("http://", "https://")):
        raise InvalidInputError("that is the address of a server: `holdproof verify --server URL`", field="target")
    if target is not None and url is None:
        target = _store_of(Path(target))
    if target is not None and url is None and _is_document(Path(target)):
        return _check_document(Path(target), root, attested)
    documents.refuse_attested(attested)
    home = call.home if target is None or url is not None else target
    with bar() as progress:
        if target is None and call.remote is not None:
            with call.open(create=False) as store:
                return store.verify.run(full=full, since_last=since_last, lock=lock, progress=progress)
        verify_store = partial(
            sync.verify, home, url or call.url, full=full, since_last=since_last, lock=lock, progress=progress
        )
        if lock or not is_url(locate(home, url or call.url).target):
            return verify_store(readonly=not lock)
        try:
            # On a server the schema is compared with one that is made there and rolled back.
            return verify_store()
        except MissingPrivilegeError:
            return verify_store(readonly=True)


@command(COMMANDS, "restore", example="holdproof restore /mnt/backups --to-index 500 --dry-run", group="Operate")
def restore(
    call: CommandContext,
    src: Annotated[Path, Argument(help="A backup, a folder of them (s3://bucket/folder too), or a closed kernel.db.")],
    *,
    to_index: Annotated[int | None, Option("--to-index", help="Not after this log index.")] = None,
    to_time: Annotated[str | None, Option("--to-time", help="Not after this moment (ISO-8601).")] = None,
    key: Annotated[
        list[str] | None,
        Option("--key", help="The id of the log key that must have signed it; also of an ML-DSA-44 one."),
    ] = None,
    erasures: Annotated[Path | None, Option("--erasures", help="More erasures to make again (JSON lines).")] = None,
    root_recovery: Annotated[
        Path | None,
        Option("--root-recovery", metavar="FILE", help="The root key's recovery code: it vouches for new keys here."),
    ] = None,
    other: Annotated[bool, Option("--other", help="Another store than the one here is meant.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Verify everything, replace nothing.")] = False,
) -> Restored:
    """Verify a backup, then put it in the place of the store; the old state is kept aside, the log tells of it."""
    with bar() as progress:
        restored = sync.restore(
            src,
            call.home,
            call.url,
            to_index=to_index,
            to_time=to_time,
            key=key,
            erasures=erasures,
            root_recovery=root_recovery,
            other=other,
            dry_run=dry_run,
            progress=progress,
        )
    warn_outside(restored.outside)
    return restored


def _transcript(value: dict[str, Any]) -> Text:
    """Draw the steps of a drill with the time of each, and what it says about a real loss."""
    text = Text()
    for step in value["steps"]:
        text.append(f"{step['seconds']:8.2f} s  {step['name']:<8} {words(step['outcome'])}\n")
    text.append(f"{value['recovery_s']:8.2f} s  from the loss to a verified store\n")
    text.append(f"{value['written_since']:8}    entries written since the backup: a real loss would have cost them\n")
    for each in value["outside"]:
        text.append(f"not in the backup: {words(each)}\n")
    if value["home"] is not None:
        text.append(f"kept: {words(value['home'])}\n")
    return text


@command(
    COMMANDS,
    "drill",
    example="holdproof drill ./drill --root-recovery ./root-recovery.txt",
    group="Operate",
    exit_code=lambda answer: answer.exit_code,
    draw=_transcript,
)
def drill(
    call: CommandContext,
    folder: Annotated[Path, Argument(help="A new folder: it stands for the new machine.")],
    *,
    root_recovery: Annotated[
        Path | None,
        Option("--root-recovery", metavar="FILE", help="The root key's recovery code, from where it is kept."),
    ] = None,
    to_url: Annotated[
        str | None, Option("--to-url", metavar="URL", help="Restore into this empty database of a server.")
    ] = None,
    keep: Annotated[bool, Option("--keep", help="Keep the restored store and its backup.")] = False,
) -> Drill:
    """Rehearse the loss of the store: back up, restore as on a new machine, verify, time each; it may be in use."""
    with bar() as progress:
        return sync.drill(
            folder, call.home, call.url, root_recovery=root_recovery, to_url=to_url, keep=keep, progress=progress
        )


@command(
    COMMANDS,
    "start-over",
    example='holdproof start-over --reason "the test data was deleted on purpose"',
    group="Operate",
)
def start_over(
    call: CommandContext,
    *,
    reason: Annotated[str, Option("--reason", help="Why the store that was here is given up; the log keeps it.")],
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> StartedOver:
    """Accept the store that is here, or begin a new one, in place of the one whose heads this home keeps."""
    if not yes:
        ask_or_refuse("The heads kept here will no longer prove what the store was before. Start over?")
    return sync.start_over(call.home, call.url, reason=reason)


@command(
    COMMANDS,
    "copy",
    example="holdproof copy ./store postgresql://ada@db.example.org/staging --to-home ./staging --dry-run",
    group="Operate",
)
def copy(
    call: CommandContext,
    src: Annotated[str, Argument(help="A home, or the URL of a database whose home is --home.")],
    dst: Annotated[str, Argument(help="A new home, or the URL of an empty database.")],
    *,
    to_home: Annotated[
        str | None, Option("--to-home", metavar="FOLDER", help="The home of a copy in a server's database.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Check both ends, change nothing.")] = False,
) -> Copied:
    """Make a second store with everything of the first, which is left alone; its log goes on under a new origin."""
    with bar() as progress:
        return sync.copy(src, dst, call.home, to_home=to_home, dry_run=dry_run, progress=progress)


@command(
    COMMANDS,
    "move",
    example="holdproof move ./store postgresql://ada@db.example.org/holdproof --dry-run",
    group="Operate",
)
def move(
    call: CommandContext,
    src: Annotated[str, Argument(help="A home, a URL, or sqlite for the file of the home in use.")],
    dst: Annotated[str, Argument(help="The same; must be empty.")],
    *,
    telemetry: Annotated[bool, Option("--telemetry", help="Telemetry too; else it stays in the home.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check both ends, change nothing.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> Moved:
    """Move a whole store between SQLite and PostgreSQL: same log, verified; the source is retired and says where to."""
    if not dry_run and not yes:
        ask_or_refuse(f"{redact(src)} cannot be opened again once the store is at {redact(dst)}. Move it?")
    with bar() as progress:
        return sync.move(src, dst, call.home, telemetry=telemetry, dry_run=dry_run, progress=progress)


@command(
    COMMANDS,
    "db check",
    example="holdproof db check --json",
    group="Operate",
    reach="server",
    group_summary=_DATABASE,
    exit_code=lambda answer: 0 if answer.ok else _UNSOUND,
)
def check(call: CommandContext) -> Check:
    """Check the integrity of the database and its migrations; exits with 8 if anything is found."""
    with spinner("checking"):
        if call.remote is not None:
            with call.open(create=False) as store:
                return store.check()
        return sync.check(call.home, call.url)


@command(COMMANDS, "db migrate", example="holdproof db migrate --dry-run", group="Operate", group_summary=_DATABASE)
def migrate(
    call: CommandContext, dry_run: Annotated[bool, Option("--dry-run", help="Only say what is pending.")] = False
) -> Migrated:
    """Apply pending migrations, each in one transaction; opening a store does the same."""
    with spinner("migrating"):
        return sync.migrate(call.home, call.url, dry_run=dry_run)


def _statements(value: dict[str, Any]) -> Text:
    """Draw the statements as a script."""
    return Text("".join(f"{statement};\n" for statement in value["statements"]))


@command(COMMANDS, "db roles", example="holdproof db roles", group="Operate", group_summary=_DATABASE, draw=_statements)
def roles(
    call: CommandContext,
    *,
    owner: Annotated[str, Option("--owner", help="The login that applies migrations.")] = "holdproof_owner",
    application: Annotated[str, Option("--application", help="The login of the store.")] = "holdproof_app",
    services: Annotated[str, Option("--services", help="The login of application tables.")] = "holdproof_services",
    reader: Annotated[str, Option("--reader", help="The login that only reads.")] = "holdproof_reader",
    apply: Annotated[bool, Option("--apply", help="Run it, as the login of the URL.")] = False,
) -> Roles:
    """Print the SQL of logins with the least rights on PostgreSQL; run it with --apply. Passwords are yours to set."""
    return sync.roles(
        call.home,
        call.url,
        owner=owner,
        application=application,
        services=services,
        reader=reader,
        apply=apply,
    )


@command(COMMANDS, "db partition", example="holdproof db partition", group="Operate", group_summary=_DATABASE)
def partition(
    call: CommandContext, months: Annotated[int, Option("--months", help="How many months are made ahead.")] = 24
) -> Partitioned:
    """Divide audit events on PostgreSQL by months, while the store is in use; again, it makes the months to come."""
    with spinner("dividing"):
        return sync.partition(call.home, call.url, months=months)


@command(COMMANDS, "db reseal", example="holdproof db reseal", group="Operate", group_summary=_DATABASE)
def reseal(call: CommandContext) -> Resealed:
    """Write page checksums anew after another SQLite program wrote to the files; the content must match the log."""
    with bar() as progress:
        return sync.reseal(call.home, call.url, progress=progress)


def _legacy(value: dict[str, Any]) -> Text:
    """Draw a paragraph for each source: what became of it, what was in it, why it was left out."""
    text = Text()
    for each in value["sources"]:
        text.append(words(each["outcome"]).ljust(13), style=_OUTCOME_STYLES.get(each["outcome"], "bold red"))
        text.append(f" {words(each['source'])}\n")
        for name in ("counts", "moved", "skipped", "why", "renamed"):
            if each[name]:
                text.append(f"  {name.ljust(12)}", style="cyan").append(f"{words(each[name])}\n")
    return text or Text("nothing to import from " + ", ".join(map(words, value["roots"])) + "\n")


@command(
    COMMANDS,
    "migrate-legacy",
    example="holdproof migrate-legacy --from ~/.kgents --dry-run",
    group="Operate",
    exit_code=lambda report: report.exit_code,
    draw=_legacy,
)
def migrate_legacy(
    call: CommandContext,
    *,
    source: Annotated[
        Path | None,
        Option("--from", metavar="DIR", help="The folder; else where kgents keeps things."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Read everything, touch nothing.")] = False,
) -> LegacyReport:
    """Import data of kgents, verify it, rename its source to NAME.migrated; exits with 8 if anything was left out."""
    with bar() as progress:
        return sync.migrate_legacy(source, call.home, call.url, dry_run=dry_run, progress=progress)
