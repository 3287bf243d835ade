"""What is stored once, what is sealed for a person, and files handled with care."""
