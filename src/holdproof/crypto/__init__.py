"""Canonical bytes, hashes, keys, signatures, trees and proofs: pure functions, bytes in, bytes out."""
