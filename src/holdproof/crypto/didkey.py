"""`did:key`: a public key as an identifier, for P-256 and Ed25519.

- `did:key:z` and base58btc of the multicodec (p256-pub 0x1200, ed25519-pub 0xed) and the raw key: the compressed
  point of 33 bytes, or 32 bytes. One key has one text.
- Other kinds of key are refused; curve points are checked as in `keys`.
"""

from holdproof.crypto import base58, keys, varint
from holdproof.crypto.keys import Alg, PublicKey
from holdproof.errors import BadKeyError, FormatError

PREFIX = "did:key:z"

_CODECS: dict[Alg, int] = {"ecdsa-p256-sha256": 0x1200, "ed25519": 0xED}
_ALGS = {codec: alg for alg, codec in _CODECS.items()}
_SECP256K1 = 0xE7


def encode(key: PublicKey) -> str:
    """Return the `did:key` of a key; BadKeyError for RSA, which is not supported."""
    codec = _CODECS.get(key.alg)
    if codec is None:
        raise BadKeyError("this kind of key has no did:key here", alg=key.alg, keyid=key.keyid)
    return PREFIX + base58.encode(varint.encode(codec) + key.raw)


def parse(text: str) -> PublicKey:
    """Parse a `did:key`; FormatError where it is malformed, BadKeyError for a key of another kind."""
    if not text.startswith(PREFIX):
        raise FormatError("not a did:key in base58btc", text=text[:100])
    data = base58.decode(text[len(PREFIX) :])
    codec, at = varint.decode(data)
    if codec not in _ALGS:
        kind = "secp256k1" if codec == _SECP256K1 else hex(codec)
        raise BadKeyError(f"did:key: a key of a kind not used here: {kind}", codec=codec)
    return keys.load_public_raw(_ALGS[codec], data[at:])
