"""What spans domains: verify, bundle, lockdown, backup, restore, erasure. Domains bring their checks; this composes."""
