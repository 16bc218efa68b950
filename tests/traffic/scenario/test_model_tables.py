"""The schema has a row for everything that there is in other rooms, and for nothing else."""

from dataclasses import fields

import pytest

from rdmawire.fabric.fault import ACTIONS, OPTIONS
from rdmawire.gpudirect import PROTOCOLS as NAMES_OF_PROTOCOLS
from rdmawire.gpudirect import Algorithm, Collective, CollectiveSpec
from rdmawire.gpudirect.nccl.connection import MAX_QPS as MOST_QPS
from rdmawire.traffic.scenario.model.collective import (
    ALGORITHMS,
    COLLECTIVES,
    DTYPES,
    MAX_QPS,
    PROTOCOLS,
)
from rdmawire.traffic.scenario.model.connection import (
    CONGESTION,
    CONNECTS,
    SCHEMES,
    Attributes,
    scheme_section,
)
from rdmawire.traffic.scenario.model.host import VIAS
from rdmawire.traffic.scenario.model.network import FAULT_OPTIONS, fault_section
from rdmawire.traffic.scenario.model.step import VERBS
from rdmawire.traffic.scenario.runner.actions import OWNERS
from rdmawire.traffic.scenario.runner.endpoint import CONTROLS
from rdmawire.traffic.scenario.runner.endpoint import WAYS as CONNECTING
from rdmawire.traffic.scenario.runner.host_runtime import WAYS
from rdmawire.verbs.qp_attr import BOUNDS
from rdmawire.verbs.wr import VERBS as WORK


def test_every_fault_has_its_options() -> None:
    assert FAULT_OPTIONS.keys() == ACTIONS.keys() == OPTIONS.keys()
    for do, options in OPTIONS.items():
        assert FAULT_OPTIONS[do].keys() == options.keys()
        needed = {*fault_section(do).needed()}
        assert needed == {
            name for name, option in options.items() if option.default is option.empty
        }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_its_parameters_and_a_maker(scheme: str) -> None:
    names = {field.name for field in fields(SCHEMES[scheme])}
    assert scheme_section(scheme).keys().keys() == names
    assert SCHEMES.keys() == {*CONGESTION.words} == CONTROLS.keys()


def test_attributes_are_those_that_queue_pairs_have() -> None:
    assert Attributes.keys().keys() <= BOUNDS.keys()


def test_every_way_to_a_gpu_is_there() -> None:
    assert {*VIAS} == WAYS.keys()


def test_every_way_to_find_each_other_is_there() -> None:
    assert {*CONNECTS} == CONNECTING.keys()


def test_all_work_has_a_verb_and_all_else_is_done_by_somebody() -> None:
    posted = [verb.work for verb in VERBS.values() if verb.work is not None]
    assert len(posted) == len(set(posted))
    assert {*posted} == {*WORK}
    others = {word for word, verb in VERBS.items() if verb.work is None}
    assert others == {*OWNERS, *COLLECTIVES, "receive"}


def test_collectives_are_those_that_can_be_done() -> None:
    assert {*COLLECTIVES} == {one.value for one in Collective}
    assert {*PROTOCOLS} == {*NAMES_OF_PROTOCOLS}
    assert {*ALGORITHMS} < {one.value for one in Algorithm}
    for word, kind in COLLECTIVES.items():
        collective = Collective(word)
        assert kind.pairwise is not collective.is_ring
        assert kind.rooted is collective.has_root
    for dtype, size in DTYPES.items():
        assert CollectiveSpec(dtype=dtype).itemsize == size
    assert MAX_QPS == MOST_QPS
