"""Objects: versioned, content-addressed values in a signed tree."""
