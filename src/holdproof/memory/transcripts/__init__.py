"""Transcripts: conversations of agent frameworks, item by item."""
