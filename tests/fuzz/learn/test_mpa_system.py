"""The machine of the dissector's MPA reader: that of the golden files."""

import pytest

from rdmawire.dissect.mpa_event import Agreement
from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.mpa_system import ALPHABETS, MPASystem
from tests.fuzz.learn.golden_machines import answers, distinguishing_word, golden, learned


@pytest.mark.parametrize("name", ALPHABETS)
def test_the_mpa_reader_has_its_golden_machine(name: str) -> None:
    assert learned(MPASystem(ALPHABETS[name]), depth=1) == golden(f"mpa-{name}")


def test_fpdus_are_read_with_and_without_markers_and_found_after_a_loss() -> None:
    for request in ("I_REQ", "I_REQ_MARKERS"):
        for reply in ("R_REP_CRC", "R_REP_MARKERS"):
            system = MPASystem(("I_REQ", "I_FPDU", "R_FPDU", "R_LOST"))
            status = "Fpdu.good" if reply == "R_REP_CRC" else "Fpdu.absent"
            begun = answers(system, (request, reply, "I_FPDU", "R_FPDU"))
            assert begun == ["StartUp", "StartUp", status, status]
    word = ("I_REQ", "R_REP_CRC", "R_FPDU", "R_LOST", "R_FPDU")
    assert answers(system, word)[-2:] == ["Lost", "Fpdu.good"]


def test_in_a_capture_that_begins_later_fpdus_are_found_by_their_crc() -> None:
    system = MPASystem(("I_FPDU", "R_FPDU"), joined=True)
    assert answers(system, ("I_FPDU", "R_FPDU")) == ["Fpdu.good", "Fpdu.good"]


def test_a_reader_that_overlooks_rejections_differs_in_the_next_fpdu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = golden("mpa-start-up")
    monkeypatch.setattr(Agreement, "rejected", property(lambda _: False, lambda *_: None))
    buggy = MPASystem(ALPHABETS["start-up"])
    word = distinguishing_word(known, learned(buggy, known))
    assert word is not None
    assert word[0] == "R_REJECT"
    assert answers(buggy, word) != list(known.outputs(word))


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(FuzzError, match="the MPA reader has no input 'SYN'"):
        MPASystem(("SYN",))
