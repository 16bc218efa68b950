"""Scenarios: files that say which hosts do what, and what must come of it.

::

    from rdmawire.traffic.scenario import play, read_scenario

    outcome = play(read_scenario("lost-first.yaml"))
    for failure in outcome.failures:
        print(failure.text(outcome.scenario.source))

A name is loaded from its module when it is first used: reading a scenario needs nothing of what
runs it.
"""

from typing import TYPE_CHECKING

from rdmawire.lazy_names import lazy_names

if TYPE_CHECKING:
    from rdmawire.traffic.scenario.document import Failure, Hint, Mistake, ScenarioError
    from rdmawire.traffic.scenario.model import Scenario
    from rdmawire.traffic.scenario.reader import (
        json_schema,
        read_scenario,
        read_scenario_text,
        read_shipped,
        shipped,
    )
    from rdmawire.traffic.scenario.runner.play import Outcome, StepOutcome, play
    from rdmawire.traffic.scenario.topology_file import (
        format_costs,
        open_costs,
        open_host,
        read_costs,
        read_topology,
        shipped_hosts,
    )

__all__ = [
    "Failure",
    "Hint",
    "Mistake",
    "Outcome",
    "Scenario",
    "ScenarioError",
    "StepOutcome",
    "format_costs",
    "json_schema",
    "open_costs",
    "open_host",
    "play",
    "read_costs",
    "read_scenario",
    "read_scenario_text",
    "read_shipped",
    "read_topology",
    "shipped",
    "shipped_hosts",
]

_MODULES = {
    "document": ("Failure", "Hint", "Mistake", "ScenarioError"),
    "model": ("Scenario",),
    "reader": ("json_schema", "read_scenario", "read_scenario_text", "read_shipped", "shipped"),
    "runner.play": ("Outcome", "StepOutcome", "play"),
    "topology_file": (
        *("format_costs", "open_costs", "open_host", "read_costs"),
        *("read_topology", "shipped_hosts"),
    ),
}

__getattr__ = lazy_names(__name__, _MODULES)
