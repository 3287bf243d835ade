"""Files encrypted with a passphrase: AES-256-GCM, the key by scrypt (N 2^15, r 8, p 1).

Layout: `holdproof-sealed/1` and a line feed, 16 bytes of salt, 12 of nonce, then the ciphertext with its tag;
everything before the ciphertext is authenticated with it. A wrong passphrase and changed bytes are the same ProofError.
"""

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from holdproof.errors import FormatError, InvalidInputError, ProofError

MAGIC: Final = b"holdproof-sealed/1\n"
RANDOM: Final = 28
"""How many random bytes one file needs: salt and nonce, new for every file."""
_SALT: Final = 16
_HEAD: Final = len(MAGIC) + RANDOM


def is_sealed(data: bytes) -> bool:
    """Return whether bytes begin like an encrypted file."""
    return data.startswith(MAGIC)


def seal(data: bytes, passphrase: str, random: bytes) -> bytes:
    """Encrypt a file with a passphrase; `random` must never be used twice."""
    if not passphrase or len(random) != RANDOM:
        raise InvalidInputError("a seal needs a passphrase, and randomness of its own")
    # A key and nonce that were used for two files would give both away: both come from `random`.
    head = MAGIC + random
    return head + AESGCM(_key(passphrase, random[:_SALT])).encrypt(random[_SALT:], data, head)


def unseal(data: bytes, passphrase: str) -> bytes:
    """Decrypt a file; ProofError for another passphrase or changed bytes, FormatError for other files."""
    if not is_sealed(data) or len(data) < _HEAD + 16:
        raise FormatError("not a sealed file, or cut short", size=len(data))
    head = data[:_HEAD]
    random = head[len(MAGIC) :]
    try:
        return AESGCM(_key(passphrase, random[:_SALT])).decrypt(random[_SALT:], data[_HEAD:], head)
    except InvalidTag as error:
        raise ProofError("the seal does not open: another passphrase, or other bytes") from error


def _key(passphrase: str, salt: bytes) -> bytes:
    # 32 MiB of memory per attempt: cheap once, expensive for guessing many passphrases.
    return Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase.encode("utf-8", "surrogatepass"))
