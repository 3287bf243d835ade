"""Backup, restore, copy and move of a whole store."""
