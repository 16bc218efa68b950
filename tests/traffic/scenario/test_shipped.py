"""Every scenario that comes with the package: what it expects is so, and its frames are good."""

from pathlib import Path

import pytest

from rdmawire.analysis.dissector import Dissector
from rdmawire.capture import open_capture
from rdmawire.traffic.scenario.play import play
from rdmawire.traffic.scenario.shipped import read_shipped, shipped, text_of
from rdmawire.traffic.scenario.verbs import VERBS
from rdmawire.wire.ib import BTH, Nak

NAMES = tuple(shipped())
LEAST = 30
OF_RELIABLE_DATAGRAMS = Nak.INVALID_RD_REQUEST
"""The one NAK that no service answers with that there is here."""


def test_there_are_enough() -> None:
    assert len(NAMES) >= LEAST


@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_expected_is_so(name: str, tmp_path: Path) -> None:
    scenario = read_shipped(name)
    capture = tmp_path / "out.pcap"
    outcome = play(scenario, capture=capture)
    assert not [failure.text(name) for failure in outcome.failures]
    assert scenario.expectations
    assert all(step.begun for step in outcome.steps)
    dissector = Dissector()
    with open_capture(capture) as records:
        found = [dissector.dissect(record.data, time_ns=record.time_ns) for record in records]
    assert len(found) == outcome.frames > 0
    assert not [frame.number for frame in found if frame.malformed or frame.unverified]
    assert not [str(check) for frame in found for check in frame.bad_checks]
    assert all(frame.checks for frame in found if frame.header(BTH))


def test_every_verb_is_shown() -> None:
    used = {step.verb for name in NAMES for step in read_shipped(name).steps}
    assert used >= set(VERBS)


def test_every_nak_is_shown() -> None:
    texts = "\n".join(map(text_of, NAMES))
    assert not [nak.name for nak in Nak if nak.name not in texts and nak != OF_RELIABLE_DATAGRAMS]


def test_each_says_what_it_is() -> None:
    assert not [name for name in NAMES if not read_shipped(name).name]
