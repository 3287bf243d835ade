"""Access control: tokens, logins and the access log."""
