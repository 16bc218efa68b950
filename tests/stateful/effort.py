"""How long to search: ``RDMAWIRE_EFFORT=50 pytest tests/stateful`` tries fifty times as much."""

import os

from hypothesis import HealthCheck, settings

EFFORT = float(os.environ.get("RDMAWIRE_EFFORT", "1"))


def searching(examples: int, steps: int = 50) -> settings:
    """Return settings for ``examples`` at the usual effort, each with up to ``steps`` steps."""
    return settings(
        max_examples=max(1, round(examples * EFFORT)),
        stateful_step_count=steps,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
