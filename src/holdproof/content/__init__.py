"""Content-addressed blocks and values, encryption per subject, durable files, the Kubo client."""
