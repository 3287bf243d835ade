"""Search over objects: full text and vectors."""
