"""Notes: JSON objects under a path and a key."""
