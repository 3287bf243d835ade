"""The Hypothesis profiles of every test run: import this before the first property test is defined.

By default examples are derived from the tests themselves, so that a run passes or fails for everybody alike. They are
the same in every run, so a quarter of the usual hundred is enough; `HOLDPROOF_THOROUGH=1` takes them all.
`HOLDPROOF_EXAMPLES=random` draws a hundred others each time, as `make faults` does. None has a deadline: a busy machine
is no defect.
"""

import os

from hypothesis import settings

_FIXED = 100 if os.environ.get("HOLDPROOF_THOROUGH") == "1" else 25

settings.register_profile("fixed", derandomize=True, database=None, deadline=None, max_examples=_FIXED)
settings.register_profile("random", database=None, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HOLDPROOF_EXAMPLES", "fixed"))
