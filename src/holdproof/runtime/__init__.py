"""What agents decide: flows, their guards, and the record of both."""
