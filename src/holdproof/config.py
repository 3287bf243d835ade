"""Settings: where data is stored and which backends serve it. Reads the configuration files and the environment only.

1. Folders: `home` > `HOLDPROOF_HOME` > XDG variables > XDG defaults; a relative XDG value counts as unset.
2. Database: `url` > `HOLDPROOF_DATABASE_URL` > project file > user file > none (the embedded default). A file may give
   the application tables another login of the same database, which the first two leave alone. The server itself,
   where that names a pooler: `HOLDPROOF_DIRECT_URL` > `direct_url` of a file.
3. Strict (the kernel): an invalid setting is a `ConfigError` that names file and key; nothing is guessed.
4. Not strict (the storage provider): an invalid setting is ignored, each with a warning.
5. A file is text of bounded size, with each key once; a key without a value is ignored.
6. A project file overrides single settings; naming another `type` replaces that provider as a whole.
7. A file counts only if it belongs to this user or to root: others could move the store elsewhere.
8. A project file moves no data, limits no retention and expands no variable until it was allowed (config_trust.py).
9. Secrets never appear in messages, warnings or `repr`.
"""

import errno
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from holdproof import config_file, config_trust, errors, folders
from holdproof.config_sections import AnchorLog, Backups, Images, TimeAuthority
from holdproof.errors import ConfigError
from holdproof.urls import same_database

_URL_VARIABLE = "HOLDPROOF_DATABASE_URL"
_DIRECT_VARIABLE = "HOLDPROOF_DIRECT_URL"
_POSTGRES = ("postgresql://", "postgres://")
_XDG = {
    "XDG_DATA_HOME": ".local/share",
    "XDG_CONFIG_HOME": ".config",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
# The first type of each kind is its default.
_TYPES = {
    "relational": ("sqlite", "postgres", "memory"),
    "vector": ("numpy", "numpy-cosine", "quantised", "hnsw", "pgvector", "memory"),
    "blob": ("filesystem", "s3", "ipfs", "memory"),
    "telemetry": ("sqlite", "postgres", "memory"),
}
_TEMPLATE = """\
# Settings of this project, over those in $XDG_CONFIG_HOME/holdproof/config.yaml; ${VAR} is a variable.
# profile: default
# providers:
#   relational: {type: postgres, connection: "${HOLDPROOF_PG}"}
#   vector: {type: numpy, dimensions: 384}
#   blob: {type: filesystem}
#   telemetry: {type: sqlite, retention: {hot_days: 30, warm_days: 365}}
# direct_url: "${HOLDPROOF_PG_DIRECT}"  # the server itself, where the connection above names a pooler
# images: {every_s: 300, keep: 3}
# backups: {folder: /mnt/backups, every_s: 3600, keep: 24}
# time: {url: https://tsa.example/tsr, certificate: /etc/holdproof/tsa.pem, every_s: 3600}
# anchor: {url: https://log.example, key: log.example+ID+KEY, every_s: 86400}
# strict_agents: true
"""


class _Under:
    """A path inside one of the four folders."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder = folder
        self.name = name

    def __get__(self, paths: "Paths", _: object = None) -> Path:
        return Path(getattr(paths, self.folder), self.name)


@dataclass(frozen=True)
class Paths:
    """Every path that Holdproof uses on disk.

    Under XDG, four folders called `holdproof`. Under a home, data lies in it directly and the rest one level
    down: `home/config`, `home/state`, `home/cache`. (Were it `home/config.yaml`, a home named `.holdproof`
    would pass for a project.) `keys` is made with the first key.
    """

    data: Path
    config: Path
    state: Path
    cache: Path

    kernel_db = _Under("data", "kernel.db")
    membrane_db = _Under("data", "membrane.db")
    telemetry_db = _Under("data", "telemetry.db")
    blobs = _Under("data", "blobs")
    dboms = _Under("data", "dboms")
    images = _Under("data", "images")
    config_file = _Under("config", "config.yaml")
    keys = _Under("config", "keys")
    heads = _Under("state", "heads.jsonl")
    former_heads = _Under("state", "former-heads")
    lockdown = _Under("state", "lockdown.json")
    degraded = _Under("state", "degraded.json")
    allowed_projects = _Under("config", "allowed_projects.json")

    @classmethod
    def find(cls, home: str | os.PathLike[str] | None = None, env: Mapping[str, str] = os.environ) -> "Paths":
        """Return the paths for this home and environment; creates nothing. ConfigError for an empty home."""
        chosen = env.get("HOLDPROOF_HOME") if home is None else os.fspath(home)
        if chosen is None:
            return cls(*(_xdg(name, env) / "holdproof" for name in _XDG))
        if not chosen.strip() or "\0" in chosen:
            raise ConfigError("HOLDPROOF_HOME (or the home given) is set but empty", variable="HOLDPROOF_HOME")
        if chosen.split("/")[0] == "~":  # unit files and env files do not expand it
            chosen = f"{_user_home(env)}{chosen[1:]}"
        root = Path(os.path.abspath(chosen))
        return cls(root, root / "config", root / "state", root / "cache")

    def check(self) -> None:
        """Raise ConfigError where the home is a file, and ReadOnlyError where this user may not look into it."""
        try:
            is_file = self.data.is_file()
            if self.data.exists() and not is_file:
                os.stat(f"{self.data}/.")  # as text: a Path would drop the dot
        except OSError as error:
            _raise_disk(error, self.data)
        if is_file:
            message = f"{self.data} is a file, not a folder; give --home or HOLDPROOF_HOME a folder"
            raise ConfigError(message, path=str(self.data), variable="HOLDPROOF_HOME")

    def create(self) -> None:
        """Create missing folders and their parents, readable by the owner only (as XDG demands).

        A new folder is hidden from git: `git add -A` in a project that holds a store must not take its keys.
        """
        tops = (self.data, self.config, self.state, self.cache)
        for folder in (*tops, self.blobs, self.dboms, self.images):
            try:
                # A folder that holds something already may be a project's own: everything in it would be ignored.
                new = not folder.is_dir() or not any(folder.iterdir())
                folders.make(folder)
                # What lies in a hidden folder of ours is hidden already.
                inside = folder != self.data and folder.is_relative_to(self.data)
                hidden = inside and folders.holds(self.data / ".gitignore", folders.HIDE_ALL)
                if new and folder in tops and not hidden:
                    folders.write_once(folder / ".gitignore", folders.HIDE_ALL)
            except OSError as error:
                _raise_disk(error, folder)


def _raise_disk(error: OSError, path: Path) -> NoReturn:
    """Raise the typed error of a system error."""
    full = (errno.ENOSPC, errno.EDQUOT)
    closed = (errno.EACCES, errno.EPERM, errno.EROFS)
    kind = errors.ReadOnlyError if error.errno in closed else errors.UnavailableError
    kind = errors.DiskFullError if error.errno in full else kind
    raise kind(f"{path}: {error.strerror or error}", path=str(path)) from error


def _user_home(env: Mapping[str, str]) -> Path:
    try:
        return Path(env.get("HOME") or Path.home()).absolute()
    except RuntimeError as error:
        raise ConfigError("no home folder is known: set HOLDPROOF_HOME", variable="HOME") from error


def _xdg(name: str, env: Mapping[str, str]) -> Path:
    value = env.get(name, "")
    return Path(value) if os.path.isabs(value) else _user_home(env) / _XDG[name]


@dataclass(frozen=True)
class RetentionSettings:
    """How many days telemetry stays hot, warm and cold; None is unlimited."""

    hot_days: int = 30
    warm_days: int = 365
    cold_days: int | None = None


@dataclass(frozen=True)
class Provider:
    """One backend of the storage provider.

    `fallback` lists the types to try next, in order; None means memory, an empty list means no fallback.
    """

    type: str
    connection: str | None = field(default=None, repr=False)
    path: str | None = None
    dimensions: int = 384
    fallback: tuple[str, ...] | None = None
    threshold: int | None = None
    retention: RetentionSettings = RetentionSettings()


@dataclass(frozen=True)
class Settings:
    """The merged settings: `database_url` None is the embedded default, `source` the last file that was read."""

    profile: str
    providers: Mapping[str, Provider]
    database_url: str | None = field(repr=False)
    source: Path | None
    warnings: tuple[str, ...]
    images: Images = field(default_factory=Images)
    strict_agents: bool = False
    """Whether flows are opened only for agents that somebody registered."""
    direct_url: str | None = field(default=None, repr=False)
    """The server itself, where `database_url` names a pooler before it; for what needs a session that lasts."""
    backups: Backups = field(default_factory=Backups)
    time: TimeAuthority = field(default_factory=TimeAuthority)
    anchor: AnchorLog = field(default_factory=AnchorLog)

    @property
    def session_url(self) -> str | None:
        """The address for work on the whole database, which needs a connection that lasts."""
        return self.direct_url or self.database_url

    def options_of(self, target: str | Path) -> dict[str, str]:
        """Return what opening a database of these settings takes beside its address."""
        if self.direct_url is None or self.database_url is None or self.database_url == ":memory:":
            return {}
        same = isinstance(target, str) and "://" in target and same_database(target, self.database_url)
        return {"direct_url": self.direct_url} if same else {}


def load(
    *,
    paths: Paths,
    url: str | None = None,
    project: Path | None = None,
    env: Mapping[str, str] = os.environ,
    strict: bool = True,
    override: Path | Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings from files and environment; ConfigError where one is invalid and `strict` is set.

    `project` is the folder at which the search for a project begins, upwards; None ignores projects. `override`
    replaces all files: another file, which must exist, or the settings themselves.
    """
    reading = _Reading(env, strict)
    root = folders.find_project(project) if project else None
    # The project's file comes last: later trees override earlier ones.
    candidates = [paths.config_file, *([root / ".holdproof" / "config.yaml"] if root else [])]
    files: list[Path] = []
    if isinstance(override, Path):
        files = [override]
    elif override is None:
        # lexists: a broken link is an error in the reading, not an absent file.
        files = [file for file in candidates if os.path.lexists(file)]
    # Only the file that was found by walking up from the working folder may be somebody else's words.
    project_files = candidates[1:] if override is None else []
    trees = [reading.file(file, paths.allowed_projects if file in project_files else None) for file in files]
    if isinstance(override, Mapping):
        trees = [reading.clean(override, _SCHEMA, Path("settings"))]
    providers = {kind: _provider(kind, [tree.get("providers", {}).get(kind, {}) for tree in trees]) for kind in _TYPES}
    database_url, providers["relational"] = reading.database(url, providers["relational"])
    profile = next((tree["profile"] for tree in reversed(trees) if "profile" in tree), "default")
    source = files[-1] if files else None
    images = Images(**{name: value for tree in trees for name, value in tree.get("images", {}).items()})
    backups = Backups(**{name: value for tree in trees for name, value in tree.get("backups", {}).items()})
    authority = TimeAuthority(**{name: value for tree in trees for name, value in tree.get("time", {}).items()})
    anchor = AnchorLog(**{name: value for tree in trees for name, value in tree.get("anchor", {}).items()})
    # One file that says so is enough: a project does not loosen what its owner's settings demand.
    strict_agents = any(tree.get("strict_agents", False) for tree in trees)
    shared = MappingProxyType(providers)
    direct_url = reading.direct(trees)
    warnings = tuple(reading.warnings)
    return Settings(
        profile, shared, database_url, source, warnings, images, strict_agents, direct_url, backups, authority, anchor
    )


def _provider(kind: str, trees: list[dict[str, Any]]) -> Provider:
    """Merge the settings of one provider, later trees over earlier ones."""
    merged: dict[str, Any] = {"type": _TYPES[kind][0]}
    retention: dict[str, int] = {}
    for tree in trees:
        # A connection or path meant for one type would be wrong for another.
        same = tree.get("type", merged["type"]) == merged["type"]
        merged = {**(merged if same else {}), **tree}
        retention = {**(retention if same else {}), **tree.get("retention", {})}
    if "fallback" in merged:
        chain = merged["fallback"]
        merged["fallback"] = (chain,) if isinstance(chain, str) else tuple(chain)
    return Provider(**{**merged, "retention": RetentionSettings(**retention)})


class _Reading:
    """One reading of files and environment: raises in strict mode, else collects warnings."""

    def __init__(self, env: Mapping[str, str], strict: bool) -> None:
        self.env = env
        self.strict = strict
        self.warnings: list[str] = []

    def refuse(self, message: str, **fields: Any) -> None:
        if self.strict:
            raise ConfigError(message, **fields)
        self.warnings.append(f"{message}; ignored")

    def database(self, url: str | None, relational: Provider) -> tuple[str | None, Provider]:
        for name, value in (("url", url), (_URL_VARIABLE, self.env.get(_URL_VARIABLE))):
            if value is None:
                continue
            if value == ":memory:":
                return value, relational
            if value.startswith(_POSTGRES):
                # The same database under another login: what the file gives to the application tables stays theirs.
                if relational.connection is not None and same_database(relational.connection, value):
                    return value, relational
                return value, replace(relational, type="postgres", connection=value)
            problem = "is no URL like postgresql://…" if value.strip() else "is set but empty"
            self.refuse(f"{name} {problem}", variable=name)
        ours = (relational.connection or "").startswith(_POSTGRES)
        # The connection of a SQLite file is its path, as D-gent writes it.
        if ours != (relational.type == "postgres") or (not ours and "://" in (relational.connection or "")):
            # Either way the kernel would end up in a new, empty SQLite file that nobody asked for.
            key = "providers.relational.connection"
            self.refuse(f"{key} must be a URL like postgresql://… for the type postgres, and only for it", key=key)
            return None, Provider(_TYPES["relational"][0])
        return relational.connection if ours else None, relational

    def direct(self, trees: list[dict[str, Any]]) -> str | None:
        """Return the address of the server itself, from the environment or the last file that has one."""
        written = next((tree["direct_url"] for tree in reversed(trees) if "direct_url" in tree), None)
        for name, value in ((_DIRECT_VARIABLE, self.env.get(_DIRECT_VARIABLE)), ("direct_url", written)):
            if value is None:
                continue
            if value.startswith(_POSTGRES):
                return str(value)
            self.refuse(f"{name} is no URL like postgresql://…", variable=name)
        return None

    def file(self, file: Path, record: Path | None = None) -> dict[str, Any]:
        """Read one file; with `record`, only what that allows it to say."""
        try:
            tree, content = config_file.parse(file)
            if record is not None:
                _require_trust(record, file, tree, content)
        except ConfigError as error:
            self.refuse(error.message, **error.fields)
            return {}
        return self.clean(tree, _SCHEMA, file)

    def clean(self, tree: Any, schema: dict[str, Any], file: Path, prefix: str = "") -> dict[str, Any]:
        valid: dict[str, Any] = {}
        for name, value in tree.items():
            key = f"{prefix}{name}"
            rule = schema.get(name)
            if isinstance(rule, dict) and isinstance(value, dict):
                valid[name] = self.clean(value, rule, file, f"{key}.")
            # A known key without a value is ignored; an unknown one is always refused.
            elif rule is None or value is not None:
                try:
                    valid[name] = self.leaf(value, rule)
                except ConfigError as error:
                    self.refuse(f"{file}: {key}: {error.message}", file=str(file), key=key, **error.fields)
        return valid

    def leaf(self, value: Any, rule: Any) -> Any:
        if rule is None:
            raise ConfigError("unknown key")
        if isinstance(rule, dict):
            raise ConfigError("must hold keys and values")
        fits, expectation = rule
        if isinstance(value, list):
            value = [expand(item, self.env) if isinstance(item, str) else item for item in value]
        elif isinstance(value, str) and "${" in value:
            value = expand(value, self.env)
            if not fits(value) and re.fullmatch("[0-9]{1,9}", value):  # variables are always text
                value = int(value)
        if not fits(value):
            raise ConfigError(f"must be {expectation}")
        return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_http(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"https?://[^/\s]\S*", value) is not None


# type() and not isinstance(): YAML's `true` is a bool, which is an int to Python.
def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


# Each rule is a test, and how the message describes what passes it.
_TEXT = (_is_text, "text that is not empty")
_HTTP = (_is_http, "an address like https://tsa.example/tsr")
_DAYS = (_is_count, "a whole number, 0 or more")
_SIZE = (_is_size, "a whole number, 1 or more")
_YES_OR_NO = (lambda value: isinstance(value, bool), "true or false")


def _schema(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the rules for one kind of provider."""

    def is_type(value: Any) -> bool:
        return value in names

    def chain(value: Any) -> bool:
        return value in names or (isinstance(value, list) and all(item in names for item in value))

    return {
        "type": (is_type, f"one of {', '.join(names)}"),
        "connection": _TEXT,
        "path": _TEXT,
        "dimensions": _SIZE,
        "fallback": (chain, f"one or a list of {', '.join(names)}"),
        "threshold": _DAYS,
        "retention": {"hot_days": _DAYS, "warm_days": _DAYS, "cold_days": _DAYS},
    }


_SCHEMA = {
    "profile": _TEXT,
    "providers": {kind: _schema(names) for kind, names in _TYPES.items()},
    "images": {"every_s": _DAYS, "keep": _SIZE},
    "time": {"url": _HTTP, "certificate": _TEXT, "every_s": _SIZE},
    "anchor": {"url": _HTTP, "key": _TEXT, "every_s": _SIZE},
    "backups": {"folder": _TEXT, "every_s": _SIZE, "keep": _SIZE, "keys": _YES_OR_NO},
    "direct_url": _TEXT,
    "strict_agents": _YES_OR_NO,
}


def expand(text: str, env: Mapping[str, str] = os.environ) -> str:
    """Replace `${VAR}` and `${env:VAR}`, not recursively; ConfigError for an unset variable other than XDG's."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if not name or not match["end"]:
            raise ConfigError("a variable is written ${VAR} or ${env:VAR}")
        if name in _XDG:
            return str(_xdg(name, env))
        if name not in env:
            raise ConfigError(f"the environment variable {name} is not set", variable=name)
        return env[name]

    return re.sub(r"\$\{(?:env:)?(?P<name>[A-Za-z_]\w*)?(?P<end>\}?)", value, text, flags=re.ASCII)


def _require_trust(record: Path, file: Path, tree: Mapping[Any, Any], content: str) -> None:
    key = config_trust.needs_trust(tree)
    if key is not None and not config_trust.is_allowed(record, file, content):
        raise ConfigError(
            f"{file}: {key} says where data goes or how long it stays, or uses a variable, and this file was not"
            f" allowed to (or has changed since); read it, then run: holdproof config allow {file.parent.parent}",
            file=str(file),
            key=key,
        )


def init_project(folder: str | Path) -> list[Path]:
    """Create `.holdproof/config.yaml`, with a `.gitignore`; AlreadyExistsError for a project."""
    target = Path(os.path.realpath(folder), ".holdproof")
    if not target.parent.is_dir():
        raise errors.NotFoundError(f"{target.parent}: no such folder", path=str(target.parent))
    if os.path.lexists(target):
        raise errors.AlreadyExistsError(f"{target}: exists already", path=str(target))
    try:
        # Filled in a temporary folder, then renamed: renaming onto a folder with content fails, so one racer wins.
        with tempfile.TemporaryDirectory(prefix=".holdproof-", dir=target.parent) as aside:
            staged = Path(aside, "new")
            staged.mkdir(mode=0o700)
            folders.write_new(staged / "config.yaml", _TEMPLATE)
            # Settings are for everybody who works on the project; a store in this folder, with its keys, is not.
            folders.write_new(staged / ".gitignore", "*\n!.gitignore\n!config.yaml\n")
            staged.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise errors.AlreadyExistsError(f"{target}: exists already", path=str(target)) from error
        _raise_disk(error, target)
    return [target / "config.yaml"]
