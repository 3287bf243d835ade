"""What can be proven: the log, keys, signed decision records."""
