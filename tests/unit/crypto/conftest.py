"""Property tests here draw the same examples in every run, and no slow machine fails them."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
