"""The dissector is compared with tshark, or with what was recorded of it."""

import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.dissect.fields import FieldInfo
from rdmawire.errors import FuzzError
from rdmawire.fuzz import make_fuzzer, tshark_fields
from rdmawire.fuzz.dissector_comparison import DissectorComparison, is_compared
from rdmawire.fuzz.frame_mutation import Mutant, Mutation, SeedFrame
from rdmawire.fuzz.tshark_differences import MUTANT_DIFFERENCES, KnownDifference
from rdmawire.fuzz.tshark_fields import Values, own_values
from rdmawire.wire.opcode import Opcode

CAPTURES = Path(__file__).parents[2] / "captures"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


@cache
def frames(name: str) -> tuple[SeedFrame, ...]:
    with open_capture(CAPTURES / name) as reader:
        return tuple(SeedFrame(record.data, record.link_type) for record in reader)


class Recorded:
    """Shows what the dissector shows, but for one field of each frame."""

    def __init__(self, name: str = "", value: str | None = None) -> None:
        self._name, self._value = name, value
        self.runs = 0

    def __call__(self, path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
        self.runs += 1
        for _, values in own_values(path, infos):
            if self._name in values:
                other = {} if self._value is None else {self._name: [self._value]}
                yield {name: one for name, one in values.items() if name != self._name} | other
            else:
                yield values


RC = [frame for frame in frames("golden/rc.pcap") if is_compared(frame)][:6]


def test_equal_fields_are_no_violation_and_one_run_is_for_all_cases() -> None:
    reader = Recorded()
    assert DissectorComparison(reader).judge_all([RC[:2], RC[2:], []]) == [None, None, None]
    assert reader.runs == 1


@pytest.mark.parametrize(("value", "kind"), [("7", "another value"), (None, "by rdmawire alone")])
def test_another_value_is_a_violation_at_its_frame(value: str | None, kind: str) -> None:
    field = "infiniband.bth.psn"
    shown = DissectorComparison(Recorded(field, value)).judge_all([[], RC[:2]])
    assert shown[0] is None
    assert shown[1] is not None
    assert (shown[1].place, shown[1].signature) == (0, f"{field} | {kind}")
    assert shown[1].expected == f"tshark shows {field} {value or 'nothing'}"


def test_a_field_that_the_other_alone_shows_is_a_violation() -> None:
    class More(Recorded):
        def __call__(self, path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
            for values in super().__call__(path, infos):
                yield values | {"infiniband.reth.va": ["0x5"]}

    acks = [one for one in frames("golden/rc.pcap") if one.data[42:43] == b"\x11"][:1]
    shown = DissectorComparison(More()).judge(acks)
    assert shown is not None
    assert shown.signature == "infiniband.reth.va | by tshark alone"
    assert shown.happened == "rdmawire shows nothing"


def test_a_known_difference_is_no_violation() -> None:
    field = "infiniband.bth.psn"
    known = KnownDifference((field,), "all packets", "a test", "")
    assert DissectorComparison(Recorded(field, "7"), [known]).judge(RC) is None
    other = KnownDifference((field,), "other captures", "a test", "", captures=("rc.pcap",))
    assert DissectorComparison(Recorded(field, "7"), [other]).judge(RC) is not None


def test_frames_that_are_malformed_or_no_rdma_are_not_compared() -> None:
    cut = SeedFrame(RC[0].data[:50], RC[0].link_type)
    arp = SeedFrame(RC[0].data[:12] + b"\x08\x06" + bytes(28), RC[0].link_type)
    reader = Recorded("eth.dst", "02:00:00:00:00:99")
    assert DissectorComparison(reader).judge([cut, arp]) is None
    assert DissectorComparison(reader).judge([cut, arp, RC[0]]) is not None


def test_without_tshark_or_pyshark_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(tshark_fields, "which", lambda _: "/usr/bin/tshark")
    monkeypatch.setattr(tshark_fields, "import_module", absent)
    with pytest.raises(FuzzError, match=r"needs pyshark: pip install 'rdmawire\[tshark\]'"):
        DissectorComparison().judge(RC)
    monkeypatch.setattr(tshark_fields, "which", lambda _: None)
    with pytest.raises(FuzzError, match="comparing with tshark needs tshark"):
        DissectorComparison().judge(RC)


def test_the_target_has_a_corpus_of_its_own() -> None:
    with pytest.raises(FuzzError, match="dissectors has no setting 'function': it has corpus"):
        make_fuzzer({"kind": "dissectors", "function": "x"})
    fuzzer = make_fuzzer({"kind": "dissectors", "corpus": str(CAPTURES / "golden" / "uc.pcap")})
    assert fuzzer is not None


# With tshark.

RC_FRAME, MAD_FRAME = RC[0], frames("generated/management.pcap")[69]
SEEN: dict[str, tuple[SeedFrame, Mutation]] = {
    "an IPv4 header with length 0": (
        RC_FRAME,
        Mutation("set", "ip", row="total_length", value=0),
    ),
    "packets to queue pair 0 or 1 that are no datagrams": (
        MAD_FRAME,
        Mutation("set", "bth", row="opcode", value=Opcode.UC_SEND_ONLY),
    ),
    "payloads that begin with 0xCAFE": (
        frames("golden/rc.pcap")[30],
        Mutation("repeat", "immdt"),
    ),
}
"""A frame and a mutation that show a difference, by the words of its row."""


@needs_tshark
def test_mutants_are_shown_alike_by_tshark() -> None:
    fuzzer = make_fuzzer({"kind": "dissectors"})
    batch = fuzzer.batch(1, 0, 60)
    assert batch.found == []
    assert batch.executed > 60


@needs_tshark
@pytest.mark.parametrize("where", SEEN)
def test_a_difference_of_mutants_is_seen_without_its_row(where: str) -> None:
    frame, mutation = SEEN[where]
    mutant = SeedFrame(Mutant(frame, (mutation,)).build(), frame.link_type)
    assert DissectorComparison().judge([mutant]) is None
    rows = [row for row in MUTANT_DIFFERENCES if row.where != where]
    assert len(rows) == len(MUTANT_DIFFERENCES) - 1
    shown = DissectorComparison(known=rows).judge([mutant])
    assert shown is not None


@needs_tshark
def test_a_wrong_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from rdmawire.fuzz import dissector_comparison

    def mistaken(path: Path, infos: Sequence[FieldInfo]) -> Iterator[tuple[object, Values]]:
        for frame, values in own_values(path, infos):
            psn = values.get("infiniband.bth.psn")
            other = {} if psn is None else {"infiniband.bth.psn": [str(int(psn[0]) & 0xFFFF)]}
            yield frame, values | other

    monkeypatch.setattr(dissector_comparison, "own_values", mistaken)
    shown = DissectorComparison().judge([frames("golden/uc.pcap")[5]])
    assert shown is not None
    assert shown.signature == "infiniband.bth.psn | another value"
