"""Where users already are: other frameworks' own interfaces, over an open store."""
