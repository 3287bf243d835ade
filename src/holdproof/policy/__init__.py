"""Policies: what agents may do, written in Cedar, decided before the act."""
