"""The schema has a row for everything that there is in other rooms, and for nothing else."""

from dataclasses import fields

import pytest

from rdmawire.fabric.action import OPTIONS
from rdmawire.nic.attribute import BOUNDS
from rdmawire.nic.work import VERBS as WORK
from rdmawire.traffic.scenario.playing.doing import OWNERS
from rdmawire.traffic.scenario.playing.holding import _WAYS
from rdmawire.traffic.scenario.playing.lane import _MAKERS
from rdmawire.traffic.scenario.schema.connection import ATTRIBUTE_KEYS, PARAMETER_KEYS
from rdmawire.traffic.scenario.schema.fault import OPTION_KEYS
from rdmawire.traffic.scenario.schema.host import VIAS
from rdmawire.traffic.scenario.schema.work import KINDS
from rdmawire.traffic.scenario.tables import SCHEMES
from rdmawire.traffic.scenario.verbs import VERBS, Takes


def test_every_fault_has_its_options() -> None:
    assert OPTION_KEYS.keys() == OPTIONS.keys()
    for do, options in OPTIONS.items():
        assert OPTION_KEYS[do].keys() == options.keys()
        needed = {name for name, row in OPTION_KEYS[do].items() if row.needed}
        assert needed == {
            name for name, option in options.items() if option.default is option.empty
        }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_its_parameters_and_a_maker(scheme: str) -> None:
    names = {field.name for field in fields(SCHEMES[scheme])}
    assert PARAMETER_KEYS[scheme].keys() == names
    assert SCHEMES.keys() == PARAMETER_KEYS.keys() == _MAKERS.keys()


def test_attributes_are_those_that_queue_pairs_have() -> None:
    assert ATTRIBUTE_KEYS.keys() <= BOUNDS.keys()


def test_every_way_to_a_gpu_is_there() -> None:
    assert {*VIAS} == _WAYS.keys()


def test_all_work_has_a_verb_and_all_else_is_done_by_somebody() -> None:
    posted = [verb.work for verb in VERBS.values() if verb.work is not None]
    assert len(posted) == len(set(posted))
    assert {*posted} == {*WORK}
    others = {word for word, verb in VERBS.items() if verb.work is None}
    assert others == {*OWNERS, "receive"}


def test_whatever_a_verb_takes_can_be_read() -> None:
    assert KINDS.keys() == {*Takes}
    taken = {row.takes for verb in VERBS.values() for row in verb.parameters.values()}
    assert taken == {*Takes}
