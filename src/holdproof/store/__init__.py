"""One open store: its context, opening and closing."""
