"""Scripted agents of a hundred calls, one for each framework, that are killed at any of them and go on."""
