"""The trail: one timeline of everything in the log."""
