"""Private keys: PKCS#8 files, mode 0600, in a folder of mode 0700 outside the data folder; or a `Keys` of your own.

Rules:
- A key is generated at its first use and durable before it is used: temporary file, fsync, link into place, fsync of
  the folder. Two processes that start at once end up with one key.
- A key file that others can read, or whose algorithm is not its role's, is refused.
- A successor is beside the current key (`<role>.next.pem`) until it is promoted; the predecessor is kept as
  `<role>.<start of its key id>.pem`.
- With `HOLDPROOF_KEY_PASSPHRASE` files are encrypted; a file that is not is then refused.
- The recovery of a new root key is written beside it, unless keys are encrypted: in clear text it would undo that.
"""

import os
import stat
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from holdproof import folders
from holdproof.content import disk
from holdproof.crypto import keys
from holdproof.crypto.keys import Alg, PrivateKey, PublicKey, Signer
from holdproof.errors import BadKeyError, DiskFullError, HoldproofError, NotFoundError, ReadOnlyError, UnavailableError
from holdproof.model.keys import Role

ROLES: Final[Mapping[Role, Alg]] = {
    "judge": "ecdsa-p256-sha256",
    "memory": "ecdsa-p256-sha256",
    "log": "ed25519",
    "root": "ed25519",
    "log-pq": "ml-dsa-44",
}
_JUDGE_ALGS: Final[Collection[Alg]] = ("ecdsa-p256-sha256", "ed25519", "rsa-pss-sha256")
_PASSPHRASE = "HOLDPROOF_KEY_PASSPHRASE"  # noqa: S105 (the variable's name)
_KEYID_DIGITS = 16


class Keys(Protocol):
    """Where private keys are: a folder, or a KMS or HSM behind the same methods. Every method may be called twice."""

    def load(self, role: Role) -> Signer:
        """Return the current key of a role; NotFoundError where there is none."""
        ...

    def ensure(self, role: Role) -> Signer:
        """Return the current key of a role, generated at its first use; durable when it returns."""
        ...

    def prepare(self, role: Role, alg: Alg) -> Signer:
        """Return the successor, generated if there is none; durable when it returns, the same until promoted.

        One that waits already is returned whatever its algorithm.
        """
        ...

    def prepared(self, role: Role) -> Signer | None:
        """Return the successor that is not promoted yet, if there is one."""
        ...

    def promote(self, role: Role) -> None:
        """Make the successor current and keep its predecessor aside; does nothing without a successor."""
        ...


def check_role(role: Role, key: Signer) -> None:
    """Refuse a key whose algorithm is not its role's; a judge key may have any but ML-DSA."""
    check_alg(role, key.alg)


def check_alg(role: Role, alg: Alg) -> None:
    """Refuse an algorithm that is not the role's."""
    if role not in ROLES:
        raise BadKeyError(f"there is no role {role}; roles are {', '.join(ROLES)}", role=role)
    allowed = _JUDGE_ALGS if role == "judge" else (ROLES[role],)
    if alg not in allowed:
        raise BadKeyError(f"a {role} key is {' or '.join(allowed)}, not {alg}", role=role, alg=alg)


class MemoryKeys:
    """Keys that live as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[Role, PrivateKey] = {}
        self._next: dict[Role, PrivateKey] = {}

    def load(self, role: Role) -> Signer:
        """See Keys."""
        if role not in self._current:
            raise NotFoundError(f"there is no {role} key here", role=role)
        return self._current[role]

    def ensure(self, role: Role) -> Signer:
        """See Keys."""
        with self._lock:
            if role not in self._current:
                self._current[role] = keys.generate(ROLES[role])
            return self._current[role]

    def prepare(self, role: Role, alg: Alg) -> Signer:
        """See Keys."""
        with self._lock:
            if role not in self._next:
                self._next[role] = keys.generate(alg)
            return self._next[role]

    def prepared(self, role: Role) -> Signer | None:
        """See Keys."""
        return self._next.get(role)

    def promote(self, role: Role) -> None:
        """See Keys."""
        with self._lock:
            if role in self._next:
                self._current[role] = self._next.pop(role)

    def adopt(self, role: Role, key: PrivateKey) -> None:
        """Take a key from a recovery as the current one; a key that exists stays."""
        check_role(role, key)
        with self._lock:
            self._current.setdefault(role, key)

    def remove(self, role: Role) -> None:
        """Forget the current key of a role: its recovery is kept elsewhere."""
        with self._lock:
            self._current.pop(role, None)


class KeyFolder:
    """The folder that holds the private keys of a store."""

    def __init__(self, folder: Path, env: Mapping[str, str] = os.environ) -> None:
        self.folder = folder
        self._passphrase = env[_PASSPHRASE].encode() if env.get(_PASSPHRASE) else None
        self._read: dict[Path, tuple[tuple[int, ...], PrivateKey]] = {}

    def path(self, role: Role) -> Path:
        """Return the path of a role's current key."""
        return self.folder / f"{role}.pem"

    @property
    def recovery(self) -> Path:
        """The path of the root key's recovery, for as long as nobody has stored it elsewhere."""
        return self.folder / "root-recovery.txt"

    @property
    def encrypted(self) -> bool:
        """Whether key files are encrypted with a passphrase."""
        return self._passphrase is not None

    def _next(self, role: Role) -> Path:
        return self.folder / f"{role}.next.pem"

    def load(self, role: Role) -> PrivateKey:
        """See Keys; a key is cached until its file changes."""
        return self._load(role, self.path(role))

    def _load(self, role: Role, path: Path) -> PrivateKey:
        try:
            mark = _mark(path.stat())
            cached = self._read.get(path)
            if cached is not None:
                cached_mark, cached_key = cached
                if cached_mark == mark:
                    return cached_key
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                pem = file.read(1 << 16)
        except FileNotFoundError:
            raise NotFoundError(f"there is no {role} key at {path}", role=role, path=str(path)) from None
        except OSError as error:
            raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise BadKeyError(f"{path} can be read by others; chmod 600 it", role=role, path=str(path))
        key = keys.load_private(pem, self._passphrase)
        check_role(role, key)
        # Marked by the status of the open file, not of the path, which may be replaced meanwhile.
        self._read[path] = _mark(status), key
        return key

    def every(self, role: Role) -> list[PrivateKey]:
        """Return all keys of a role in the folder: current, successor and predecessors; unreadable ones are skipped."""
        signers = []
        for path in sorted(self.folder.glob(f"{role}.*pem")):
            with suppress(HoldproofError):
                signers.append(self._load(role, path))
        return signers

    def ensure(self, role: Role) -> PrivateKey:
        """See Keys."""
        return self._ensure(role, self.path(role), ROLES[role])

    def _ensure(self, role: Role, path: Path, alg: Alg) -> PrivateKey:
        if not path.exists():
            self._put(keys.generate(alg), path)
        return self._load(role, path)

    def adopt(self, role: Role, key: PrivateKey) -> None:
        """Write a key from a recovery as the current one; a key that exists stays."""
        check_role(role, key)
        self._put(key, self.path(role))

    def remove(self, role: Role) -> None:
        """Remove the current key of a role from the folder: its recovery is kept elsewhere."""
        with self._writing():
            self.path(role).unlink(missing_ok=True)
            self._sync()

    def prepare(self, role: Role, alg: Alg) -> PrivateKey:
        """See Keys."""
        return self._ensure(role, self._next(role), alg)

    def prepared(self, role: Role) -> PrivateKey | None:
        """See Keys."""
        path = self._next(role)
        return self._load(role, path) if path.exists() else None

    def promote(self, role: Role) -> None:
        """See Keys."""
        path = self.path(role)
        successor = self._next(role)
        if not successor.exists():
            return
        # The predecessor is linked aside before the rename replaces it: at no moment is it lost.
        aside = self.folder / f"{role}.{self.load(role).keyid[:_KEYID_DIGITS]}.pem"
        with self._writing():
            with suppress(FileExistsError):
                os.link(path, aside)
            with suppress(FileNotFoundError):  # another process was first
                os.replace(successor, path)
            self._sync()

    def _put(self, key: PrivateKey, path: Path) -> None:
        """Write a key durably; a key that exists stays."""
        with self._writing():
            folders.make(self.folder)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(key.to_pem(self._passphrase))
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # another process was first; its key counts
                    os.link(name, path)
            finally:
                os.unlink(name)  # a private key must not stay in a temporary file
            self._sync()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = DiskFullError if error.errno in disk.FULL else ReadOnlyError
            raise kind(f"cannot write keys to {self.folder}: {error.strerror}") from error

    def _sync(self) -> None:
        folders.sync(self.folder)


def own_keys(keys: Keys) -> list[PublicKey]:
    """Return the public log keys that a home holds: of a folder also earlier ones, of another place the current one."""
    if isinstance(keys, KeyFolder):
        return [key.public for key in keys.every("log")]
    try:
        return [keys.load("log").public]
    except NotFoundError:
        return []


def _mark(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes when a key file is replaced; its mode too, so that a loosened one is refused."""
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode
