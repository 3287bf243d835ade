"""Where the parts of a store are: which of them a backup holds, and which it can only name.

A backup holds what is in the kernel's own database and in the home. A bucket, an IPFS node, a second server or a folder
elsewhere has backups of its own: such parts are named in the manifest, in the answer and by a restore.
"""

from pathlib import Path
from typing import Final, NamedTuple

from holdproof.config import Provider
from holdproof.db import Tx, migrate, sql
from holdproof.db.backends import is_url
from holdproof.storage.open_stores import configured_file, vector_database
from holdproof.store.context import Context
from holdproof.urls import redact, same_database

_FOLDER_KIND: Final = "files"
_MIGRATION: Final = "0003_blobs"
_CONFIGURED: Final = {"filesystem": _FOLDER_KIND, "s3": "s3", "ipfs": "ipfs"}


class Locations(NamedTuple):
    """The spaces in the server's database, those in files of the home, and the parts that are elsewhere."""

    schemas: list[str]
    files: dict[str, Path]
    outside: list[str]


def locate(context: Context) -> Locations:
    """Return where the databases of an open store are; blobs are asked of its rows (`blobs_outside`)."""
    providers = context.settings.providers
    url = context.settings.database_url
    schemas = [] if url is None else ["kernel"]
    files = {} if url is not None else {"kernel": Path(context.database.backend.facts()["path"])}
    outside: list[str] = []
    defaults = {"membrane": context.paths.membrane_db, "telemetry": context.paths.telemetry_db}
    for space, kind, what in (
        ("membrane", "relational", "application tables"),
        ("telemetry", "telemetry", "telemetry"),
    ):
        connection, path = _target(providers[kind], providers["relational"], defaults[space])
        if connection is not None and url is not None and same_database(connection, url):
            schemas.append(space)
        elif connection is not None:
            outside.append(f"{what}: {redact(connection)}")
        elif path == defaults[space]:
            files |= {space: path} if path.exists() else {}
        elif path.exists():
            outside.append(f"{what}: {path}")
    vectors = vector_database(providers["vector"])
    if vectors is not None and not (is_url(vectors) and url is not None and same_database(vectors, url)):
        outside.append(f"vectors: {redact(vectors)}")
    return Locations(schemas, files, outside)


def _target(provider: Provider, relational: Provider, default: Path) -> tuple[str | None, Path]:
    """Return the URL of a store that is on a server, and the file of one that is not."""
    if provider.type == "postgres":
        return provider.connection or relational.connection, default
    # In memory there is nothing to keep, but blobs and vectors still have their rows in the default file.
    return None, (configured_file(provider) if provider.type == "sqlite" else None) or default


_PLACES = sql("SELECT place, count(*) FROM blob_objects WHERE doomed_at IS NULL GROUP BY place ORDER BY place")


def blobs_outside(context: Context, tx: Tx) -> list[str]:
    """Return where blobs are whose bytes are not in the home, with their number, as their rows say."""
    provider = context.settings.providers["blob"]
    folder = Path(provider.path).expanduser() if provider.path else context.paths.blobs
    configured = provider.connection or str(folder)
    outside: list[str] = []
    # Application tables that nobody has opened since an older version have no such table yet.
    if _MIGRATION not in migrate.applied(tx):
        return outside
    for place, count in tx.all(_PLACES):
        if place == _FOLDER_KIND and folder == context.paths.blobs:
            continue
        # Rows may be older than the configuration: then only the kind of their place is known.
        where = redact(configured) if _CONFIGURED.get(provider.type) == place else str(place)
        outside.append(f"{count} blobs: {where}")
    return outside
