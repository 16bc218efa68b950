"""How many examples the property tests try that name their number.

``make slow`` tries more, by the factor of its profile of Hypothesis (``tests/conftest.py``), and
``RDMAWIRE_EFFORT=50 pytest tests/stateful`` fifty times as many.
"""

import os

from hypothesis import HealthCheck, settings

EFFORT = float(os.environ.get("RDMAWIRE_EFFORT", "1"))
FAST = 30
"""Examples of each property test in ``make test``."""


def examples(fast: int) -> int:
    """Return how many examples to try in this run, where ``make test`` tries ``fast``."""
    return max(1, round(fast * EFFORT * settings().max_examples / FAST))


def searching(fast: int, steps: int = 50) -> settings:
    """Return settings for ``fast`` examples in ``make test``, each with up to ``steps`` steps."""
    return settings(
        max_examples=examples(fast),
        stateful_step_count=steps,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
