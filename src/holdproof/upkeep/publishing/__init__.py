"""The log as files that anybody can read: where they go, and what is written."""
