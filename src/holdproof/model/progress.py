"""What a caller hears of long work."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is, and how much there is (0: nobody knows)."""
