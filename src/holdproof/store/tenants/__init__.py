"""Tenants: stores of their own below a parent store, which knows their names and records their heads."""
