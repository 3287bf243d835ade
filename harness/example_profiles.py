"""The Hypothesis profiles of every test run: import this before the first property test is defined.

By default examples are derived from the tests themselves, so that a run passes or fails for everybody alike;
`HOLDPROOF_EXAMPLES=random` draws others each time, as `make faults` does. Neither has a deadline: a busy machine is no
defect.
"""

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.register_profile("random", database=None, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HOLDPROOF_EXAMPLES", "fixed"))
