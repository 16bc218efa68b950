"""Settings of all tests: neither chance nor a busy machine decides what they find."""

import os

from hypothesis import HealthCheck, Phase, settings

from tests.effort import FAST

# Commands that tests start import compiled modules, as users do: else each takes a second longer.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# An example may take as long as it takes: a slow machine is no failure. The examples follow from
# each test's own code, so that two runs of one tree find the same; with RDMAWIRE_EFFORT set, they
# are drawn anew each time, and what fails is printed with a line that repeats it
# (`@reproduce_failure`). Tests may ask for fewer or more examples, with `@settings`; what they do
# not set is inherited from here.
settings.register_profile(
    "fast",
    deadline=None,
    max_examples=FAST,
    derandomize="RDMAWIRE_EFFORT" not in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fast")

# For `make slow`, which runs all property tests once more.
settings.register_profile("slow", parent=settings(), max_examples=200)

# For `make mutants`, which wants to know whether a test fails, and not by which smallest example.
settings.register_profile(
    "mutants", parent=settings(), phases=[Phase.explicit, Phase.generate], database=None
)
