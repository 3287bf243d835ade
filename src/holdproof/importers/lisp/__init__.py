"""Lisp data as plain values: a reader that evaluates nothing, and a writer; pure."""
