"""The fuzz targets, for a short while: any bytes, and seeds with a few bytes changed."""

from collections.abc import Callable
from functools import cache
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture.pcap import PcapParser
from rdmawire.decode import Walk
from rdmawire.dissect.dissector import Dissector
from rdmawire.filter import Filter
from rdmawire.traffic.scenario.section import Section
from rdmawire.wire import ib, mad, mpa, roce
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
def test_nothing_but_wire_and_capture_errors(
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
}
"""What each target calls, for a mistake to be made in it."""


@pytest.mark.parametrize(("name", "target"), TARGETS.items(), ids=TARGETS)
def test_a_mistake_in_what_is_fuzzed_is_found(
    name: str, target: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object, **__: object) -> NoReturn:
        raise IndexError

    monkeypatch.setattr(*MISTAKES[name], mistaken)
    with pytest.raises(IndexError):
        target(seeds(name)[0])
