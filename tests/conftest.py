"""Settings of all tests: what they find does not depend on how busy the machine is."""

from hypothesis import HealthCheck, settings

# An example may take as long as it takes: a slow machine is no failure. What fails is printed with
# a line that repeats it (`@reproduce_failure`). Tests may ask for fewer or more examples, with
# `@settings`; what they do not set is inherited from here.
settings.register_profile(
    "rdmawire",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rdmawire")
