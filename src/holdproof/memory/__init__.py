"""What agents know: objects, content-addressed, with full history, in signed snapshots."""
