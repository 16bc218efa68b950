"""Signatures of findings name a cause: they have no values of a case."""

import re

import pytest

from rdmawire.fuzz.fuzzer import make_fuzzer

VALUE = re.compile(r"with \d+ bytes|\d+ bytes in|dmalen \d|PSN \d|NAK code \d")


@pytest.mark.parametrize("kind", ["engine", "requester"])
def test_reasons_have_no_values(kind: str) -> None:
    reached = make_fuzzer({"kind": kind}).batch(1, 0, 80).reached
    whys = {why for _, why in reached}
    assert len(whys) > 20
    assert not [why for why in whys if VALUE.search(why)]


def test_one_fault_has_one_signature_at_each_length() -> None:
    spec = {"kind": "engine", "service": "rc", "profile": "rxe", "accept": "none"}
    found = make_fuzzer(spec).batch(1, 0, 100).found
    assert found
    assert not [one for one in found if VALUE.search(one.violation.signature)]


def test_a_gap_in_a_message_of_uc_is_named() -> None:
    spec = {"kind": "engine", "service": "uc", "bug": "uc-ignores-gaps"}
    whys = {one.violation.expected for one in make_fuzzer(spec).batch(1, 0, 100).found}
    assert any(why.endswith("(a packet before it is missing)") for why in whys)
