"""What agents know."""
