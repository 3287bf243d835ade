"""Images: all objects and their history in files."""
