"""Ed25519 public keys before they are trusted (RFC 8032 section 5.1.3, and stricter).

- The encoding is canonical: y below the field prime, no sign bit on x = 0.
- The point lies on the curve.
- The point is not of low order: under such a key one signature would fit many messages.
"""

from holdproof.errors import BadKeyError

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P

# y of the eight points whose order divides 8: order 1, 2, 4, and the two values of order 8.
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
LOW_ORDER_Y = frozenset({1, P - 1, 0, _ORDER_8, P - _ORDER_8})


def check_ed25519(raw: bytes) -> None:
    """Refuse with BadKeyError what no honest key generation makes."""
    if len(raw) != 32:
        raise BadKeyError("an Ed25519 public key has 32 bytes", length=len(raw))
    # The top bit is the sign of x, not part of y.
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= P:
        raise BadKeyError("Ed25519 public key: not the canonical encoding", raw=raw.hex())
    if y in LOW_ORDER_Y:
        raise BadKeyError("Ed25519 public key: a point of low order", raw=raw.hex())
    numerator = (y * y - 1) % P
    denominator = (D * y * y + 1) % P
    # Euler's criterion: x^2 = numerator / denominator has a root exactly if the product is a square.
    if pow(numerator * denominator, (P - 1) // 2, P) != 1:
        raise BadKeyError("Ed25519 public key: not a point of the curve", raw=raw.hex())
