"""Private keys on disk: PKCS#8 files, mode 0600, in a folder of mode 0700 outside the data folder.

A key is made at its first use and written before it is relied on: temporary file, fsync, link into place, fsync of the
folder. Two processes that start at once end up with one key.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from holdfast.crypto import keys
from holdfast.crypto.keys import Alg, PrivateKey
from holdfast.errors import BadKeyError, NotFoundError, ReadOnlyError, UnavailableError

Role = Literal["judge", "memory", "log", "root"]
ROLES: Final[Mapping[Role, Alg]] = {
    "judge": "ecdsa-p256-sha256",
    "memory": "ecdsa-p256-sha256",
    "log": "ed25519",
    "root": "ed25519",
}
_PASSPHRASE = "HOLDFAST_KEY_PASSPHRASE"  # noqa: S105 (the variable's name)


class KeyFolder:
    """The folder that holds the private keys of a store."""

    def __init__(self, folder: Path, env: Mapping[str, str] = os.environ) -> None:
        self.folder = folder
        self._passphrase = env[_PASSPHRASE].encode() if env.get(_PASSPHRASE) else None

    def path(self, role: Role) -> Path:
        """Where the current key of a role lies."""
        return self.folder / f"{role}.pem"

    def load(self, role: Role) -> PrivateKey:
        """The current key of a role; refuses a file that others can read."""
        path = self.path(role)
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                pem = file.read(1 << 16)
        except FileNotFoundError:
            raise NotFoundError(f"there is no {role} key at {path}", role=role, path=str(path)) from None
        except OSError as error:
            raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
        if mode & 0o077:
            raise BadKeyError(f"{path} can be read by others; chmod 600 it", role=role, path=str(path))
        return keys.load_private(pem, self._passphrase)

    def ensure(self, role: Role) -> PrivateKey:
        """The current key of a role, made at its first use."""
        if not self.path(role).exists():
            self.put(role, keys.generate(ROLES[role]), replace=False)
        return self.load(role)

    def put(self, role: Role, key: PrivateKey, *, replace: bool) -> None:
        """Write a key durably; without `replace`, one that is there already stays."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{role}-", dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(key.to_pem(self._passphrase))
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(name, self.path(role))
            else:
                with suppress(FileExistsError):  # another process was first; its key counts
                    os.link(name, self.path(role))
                os.unlink(name)
            folder = os.open(self.folder, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except OSError as error:
            raise ReadOnlyError(f"cannot write keys to {self.folder}: {error.strerror}") from error
