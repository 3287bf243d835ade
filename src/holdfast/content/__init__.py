"""What is stored once: content-addressed blocks, values, and the sealing of what belongs to a person."""
