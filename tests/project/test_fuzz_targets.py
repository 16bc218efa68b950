"""The fuzz targets, for a short while: any bytes, and seeds with a few bytes changed."""

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture.pcap import PcapParser
from rdmawire.decode import Walk
from rdmawire.dissect.dissector import Dissector
from rdmawire.errors import FuzzError
from rdmawire.filter import Filter
from rdmawire.fuzz import Case, EngineTarget, judge, planted
from rdmawire.traffic.scenario.section import Section
from rdmawire.wire import ib, mad, mpa, roce
from rdmawire.wire.packet import Packet
from tools.fuzz import responder
from tools.fuzz.mutators import MUTATORS, mutate
from tools.fuzz.seeds import SEEDS
from tools.fuzz.targets import TARGETS


@cache
def seeds(name: str) -> list[bytes]:
    return [data[:2048] for data in SEEDS[name]()]


def changed(data: bytes) -> st.SearchStrategy[bytes]:
    """A few bytes replaced, then perhaps cut short."""
    change = st.tuples(st.integers(0, max(len(data) - 1, 0)), st.integers(0, 255))

    def apply(changes: list[tuple[int, int]], length: int) -> bytes:
        copy = bytearray(data)
        for place, value in changes:
            copy[place : place + 1] = bytes([value])
        return bytes(copy[:length])

    return st.builds(apply, st.lists(change, max_size=4), st.integers(0, len(data)))


@pytest.mark.parametrize(("name", "target"), TARGETS.items(), ids=TARGETS)
@given(data=st.data())
def test_targets_raise_wire_and_capture_errors_alone(
    name: str, target: Callable[[bytes], None], data: st.DataObject
) -> None:
    any_bytes = st.binary(max_size=300)
    seeded = st.sampled_from(seeds(name)).flatmap(changed)
    target(data.draw(any_bytes | seeded))


def test_every_target_has_seeds_and_takes_them() -> None:
    assert SEEDS.keys() == TARGETS.keys()
    for name, target in TARGETS.items():
        first = seeds(name)[:40]
        assert first, name
        for data in first:
            target(data)


MISTAKES = {
    "headers": (ib.BTH, "build"),
    "packets": (roce, "parse"),
    "layouts": (mad, "layout"),
    "fpdus": (mpa, "parse_fpdu"),
    "frames": (Dissector, "dissect"),
    "streams": (Dissector, "dissect"),
    "edits": (Walk, "run"),
    "captures": (PcapParser, "__init__"),
    "filters": (Filter, "__init__"),
    "scenarios": (Section, "_pairs"),
    "packet-values": (Packet, "parse"),
    "fpdu-values": (mpa, "parse_fpdu"),
    "bth-offset": (roce, "bth_offset"),
    "icrc-status": (roce, "parse"),
    "responder": (EngineTarget, "send"),
}
"""What each target calls, for a mistake to be made in it."""


@pytest.mark.parametrize(("name", "target"), TARGETS.items(), ids=TARGETS)
def test_a_mistake_in_what_is_fuzzed_is_found(
    name: str, target: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object, **__: object) -> NoReturn:
        raise IndexError("a mistake")

    monkeypatch.setattr(*MISTAKES[name], mistaken)
    with pytest.raises((IndexError, AssertionError), match="a mistake"):
        list(map(target, seeds(name)))


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutator_makes_bytes_that_its_target_takes(name: str) -> None:
    first = seeds(name)[:20]
    mutants = [mutate(name, data, 8192, seed) for seed, data in enumerate(first * 3)]
    made = [data for data in mutants if data is not None]
    assert bool(made) == (name in MUTATORS)
    for data in made:
        TARGETS[name](data)
    again = [mutate(name, data, 8192, seed) for seed, data in enumerate(first * 3)]
    assert again == mutants


@pytest.mark.parametrize("name", MUTATORS)
def test_a_mutator_takes_any_bytes_and_is_never_too_long(name: str) -> None:
    for seed in range(20):
        for data in (b"", b"\xff", b"{}", bytes(100)):
            assert len(mutate(name, data, 50, seed) or b"") <= 50


def test_a_frame_is_mutated_as_a_frame_of_its_link_type() -> None:
    data = seeds("frames")[0]
    made = [one for seed in range(40) if (one := mutate("frames", data, 8192, seed)) is not None]
    assert {one[0] for one in made} == {data[0]}
    assert len(set(made)) > len(made) // 2


def test_most_mutants_of_a_case_are_cases() -> None:
    seed = next(SEEDS["responder"]())
    made = [responder.mutated_case(seed, Random(number)) for number in range(100)]
    assert sum(map(_is_case, made)) > 80
    assert len(set(made)) > 50


def _is_case(data: bytes) -> bool:
    try:
        Case.from_json(json.loads(data))
    except FuzzError:
        return False
    return True


def test_a_case_that_the_responder_answers_wrongly_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = EngineTarget(rules=planted("short-writes").rules)
    monkeypatch.setattr(responder, "_target", lambda: target)
    cases = (responder.random_case(Random(number)) for number in range(300))
    wrong = next(case for case in cases if judge(target, case) is not None)
    with pytest.raises(AssertionError):
        responder.responder(responder.case_bytes(wrong))


def test_a_case_with_a_field_that_no_header_has_is_none() -> None:
    values = json.loads(next(SEEDS["responder"]()))
    values["inputs"] = [{"input": "packet", "opcode": 100, "fields": {"ip.protocregionol": 0}}]
    responder.responder(json.dumps(values).encode())
