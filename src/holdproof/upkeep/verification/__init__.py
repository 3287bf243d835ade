"""Verification of a whole store against its log and the heads kept elsewhere."""
