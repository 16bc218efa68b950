"""Whatever the reader lets through can be played: it passes or it fails, and nothing breaks."""

from itertools import count

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rdmawire.traffic.scenario.document import Diagnostics, ScenarioError
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.reader import read_tree
from rdmawire.traffic.scenario.runner.play import play
from tests.effort import examples
from tests.traffic.scenario.base import PLACES, at, base, noded, parsed
from tests.traffic.scenario.test_section_rows import ROWS, Row

CHANGES = st.lists(
    st.sampled_from(ROWS).flatmap(
        lambda row: st.tuples(st.just(row), st.sampled_from(row.row.type.examples))
    ),
    max_size=4,
)


def with_changes(changes: list[tuple[Row, str]]) -> Scenario | None:
    """The scenario with everything in it, and samples in some places; if that can be read."""
    document = base()
    for row, sample in changes:
        try:
            place = at(document, PLACES[row.section.called])
            place[row.key] = parsed(sample)
        except (LookupError, TypeError):
            continue  # another change put something else there
    try:
        return read_tree(noded(document, count(1)), Diagnostics("it.yaml"))
    except ScenarioError:
        return None


def is_small(scenario: Scenario) -> bool:
    """Whether it does not take long."""
    return (
        sum(step.times for step in scenario.steps) < 100
        and all(connection.count < 16 for connection in scenario.connections)
        and all(memory.size < 1 << 20 for host in scenario.hosts for memory in host.memory)
    )


@given(CHANGES)
@settings(max_examples=examples(12))
def test_what_can_be_read_can_be_played(changes: list[tuple[Row, str]]) -> None:
    scenario = with_changes(changes)
    assume(scenario is not None)
    assert scenario is not None
    assume(is_small(scenario))
    # The buffers of the connection manager count as locked memory, and may be more than its limit.
    assume(all(host.locked_memory is None for host in scenario.hosts))
    outcome = play(scenario)
    assert len(outcome.steps) == len(scenario.steps)


def test_everything_is_small_enough_to_be_played() -> None:
    scenario = with_changes([])
    assert scenario is not None
    assert is_small(scenario)
