"""Which project files may say where data goes and how long it stays: those that this user allowed, as they were then.

A project file comes with a cloned repository. Until it is allowed it can neither move data to a server, a folder or
memory, nor send a variable of the environment there, nor shorten what is retained. A file is allowed by its path and
the SHA-256 of its bytes: whoever changes it, it has to be allowed again.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from holdproof import folders
from holdproof.errors import FormatError

# Where data goes (a server, a folder, memory, which forgets) and how long it stays.
_KEYS = frozenset(
    {"connection", "direct_url", "path", "type", "fallback", "retention", "images", "backups", "time", "anchor"}
)


def digest(raw: bytes) -> str:
    """Return what stands for the content of a file."""
    return sha256(raw).hexdigest()


def needs_trust(tree: Any, prefix: str = "") -> str | None:
    """Return the first key that only an allowed file may have: one of `_KEYS`, or a variable; None if there is none."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            key = f"{prefix}{name}"
            if name in _KEYS and value is not None:
                return key
            if (inner := needs_trust(value, f"{key}.")) is not None:
                return inner
    if isinstance(tree, list):
        return next(filter(None, (needs_trust(each, prefix) for each in tree)), None)
    return prefix.rstrip(".") if isinstance(tree, str) and "${" in tree else None


def is_allowed(record: Path, file: Path, content: str) -> bool:
    """Return whether a file with this digest was allowed; `record` is where that is written down."""
    return _read(record).get(os.path.realpath(file)) == content


def allow(record: Path, file: Path) -> None:
    """Allow a file as it is now."""
    allowed = _read(record) | {os.path.realpath(file): digest(file.read_bytes())}
    folders.make(record.parent)
    handle, aside = tempfile.mkstemp(prefix=".allowed-", dir=record.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(allowed, stream, indent=1, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, record)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise


def _read(record: Path) -> dict[str, str]:
    try:
        entries = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FormatError(f"{record} cannot be read: {error}; remove it, and allow projects again") from error
    return {str(name): str(value) for name, value in entries.items()} if isinstance(entries, dict) else {}
