"""The HTTP server: API and console."""
