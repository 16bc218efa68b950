"""The dissector is compared with tshark, or with what was recorded of it."""

import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.dissect.fields import FieldInfo
from rdmawire.errors import FuzzError
from rdmawire.fuzz import Finding, make_fuzzer, read_finding, tshark_fields, write_finding
from rdmawire.fuzz.dissector_comparison import DissectorComparison, FieldReader, is_compared
from rdmawire.fuzz.finding import as_finding
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.parser_fuzzer import ParserFuzzer
from rdmawire.fuzz.seed_corpus import SeedCorpus
from rdmawire.fuzz.tshark_differences import KNOWN_DIFFERENCES, KnownDifference
from rdmawire.fuzz.tshark_fields import Values, own_values, tshark_values
from rdmawire.fuzz.tshark_malformed import (
    MALFORMED_DIFFERENCES,
    MalformedDifference,
    Shown,
    shown_by,
)
from rdmawire.fuzz.tshark_mutants import MUTANT_DIFFERENCES
from tests.fuzz.tshark_recorded import (
    CAPTURES,
    HEALTHY,
    MALFORMED,
    MUTANTS,
    OVER_IPV6,
    frames,
    recorded_values,
)

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
needs_pyshark = pytest.mark.skipif(find_spec("pyshark") is None, reason="pyshark is not installed")


class Other:
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
    reader = Other()
    assert DissectorComparison(reader).judge_all([RC[:2], RC[2:], []]) == [None, None, None]
    assert reader.runs == 1


@pytest.mark.parametrize(("value", "kind"), [("7", "another value"), (None, "by rdmawire alone")])
def test_another_value_is_a_violation_at_its_frame(value: str | None, kind: str) -> None:
    field = "infiniband.bth.psn"
    shown = DissectorComparison(Other(field, value)).judge_all([[], RC[:2]])
    assert shown[0] is None
    assert shown[1] is not None
    assert (shown[1].place, shown[1].signature) == (0, f"{field} | {kind}")
    assert shown[1].expected == f"tshark shows {field} {value or 'nothing'}"


def test_a_field_that_the_other_alone_shows_is_a_violation() -> None:
    class More(Other):
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
    assert DissectorComparison(Other(field, "7"), [known]).judge(RC) is None
    other = KnownDifference((field,), "other captures", "a test", "", captures=("rc.pcap",))
    assert DissectorComparison(Other(field, "7"), [other]).judge(RC) is not None


def test_frames_without_a_bth_are_not_compared() -> None:
    cut = SeedFrame(RC[0].data[:50], RC[0].link_type)
    arp = SeedFrame(RC[0].data[:12] + b"\x08\x06" + bytes(28), RC[0].link_type)
    reader = Other("eth.dst", "02:00:00:00:00:99")
    assert DissectorComparison(reader).judge([cut, arp]) is None
    assert DissectorComparison(reader).judge([cut, arp, RC[0]]) is not None


def test_without_tshark_or_pyshark_a_line_names_what_to_install(
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


def finding(reader: FieldReader) -> tuple[ParserFuzzer, Finding]:
    """A fuzzer with this reader, and what it finds first, minimised."""
    corpus = SeedCorpus([RC])
    fuzzer = ParserFuzzer(DissectorComparison(reader), corpus)
    first = fuzzer.batch(seed=1, first=0, runs=20).found[0]
    return fuzzer, as_finding({"kind": "dissectors"}, 1, fuzzer.minimised(first))


def test_a_finding_is_minimised_saved_and_played_again(tmp_path: Path) -> None:
    fuzzer, found = finding(Other("infiniband.bth.psn", "7"))
    (mutant,) = found.case["inputs"]
    assert mutant["mutations"] == []
    place = write_finding(tmp_path, found, fuzzer)
    assert place.name.startswith("infiniband-bth-psn-another-value-")
    assert {path.name for path in place.iterdir()} == {
        "finding.json", "packets.pcapng", "report.txt",
    }  # fmt: skip
    with open_capture(place / "packets.pcapng") as reader:
        (record,) = reader
    assert record.data == bytes.fromhex(mutant["data"])
    assert "tshark shows infiniband.bth.psn 7" in (place / "report.txt").read_text()
    saved = read_finding(place)
    assert saved == found
    assert fuzzer.replay(saved.case)[0] == found.violation
    healthy = ParserFuzzer(DissectorComparison(Other()), SeedCorpus([RC]))
    assert healthy.replay(saved.case)[0] is None


# With what tshark showed when it was recorded.


@needs_pyshark
def test_recorded_frames_are_shown_alike() -> None:
    assert DissectorComparison(recorded_values).judge(HEALTHY) is None


@needs_pyshark
def test_a_recorded_value_that_differs_is_found() -> None:
    def other(path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
        for values in recorded_values(path, infos):
            va = values.get("infiniband.reth.va")
            yield values if va is None else values | {"infiniband.reth.va": ["0x0"]}

    shown = DissectorComparison(other).judge(HEALTHY)
    assert shown is not None
    assert HEALTHY[shown.place] == OVER_IPV6
    assert shown.signature == "infiniband.reth.va | another value"


def test_each_row_for_mutants_has_a_frame() -> None:
    assert [row.where for row in MUTANT_DIFFERENCES] == list(MUTANTS)


def check_row(reader: FieldReader, row: KnownDifference) -> None:
    """The frames of a row differ in what the row allows, and in nothing else."""
    frames = MUTANTS[row.where]
    assert DissectorComparison(reader, (*KNOWN_DIFFERENCES, row)).judge(frames) is None
    others = [one for one in (*KNOWN_DIFFERENCES, *MUTANT_DIFFERENCES) if one is not row]
    assert DissectorComparison(reader, others).judge(frames) is not None


@needs_pyshark
@pytest.mark.parametrize("row", MUTANT_DIFFERENCES, ids=lambda row: row.where)
def test_each_row_for_mutants_is_needed(row: KnownDifference) -> None:
    check_row(recorded_values, row)


def test_each_row_for_malformed_frames_has_a_frame() -> None:
    assert [row.where for row in MALFORMED_DIFFERENCES] == list(MALFORMED)


def check_malformed(reader: FieldReader, row: MalformedDifference) -> None:
    """The frames of a row differ in nothing that is not allowed, but need this row."""
    frames = MALFORMED[row.where]
    assert DissectorComparison(reader).judge(frames) is None
    others = [one for one in MALFORMED_DIFFERENCES if one is not row]
    assert DissectorComparison(reader, malformed=others).judge(frames) is not None


@needs_pyshark
@pytest.mark.parametrize("row", MALFORMED_DIFFERENCES, ids=lambda row: row.where)
def test_each_row_for_malformed_frames_is_needed(row: MalformedDifference) -> None:
    check_malformed(recorded_values, row)


@pytest.mark.parametrize(
    ("mine", "its", "by"),
    [
        (["1"], [], Shown.RDMAWIRE),
        ([], ["1"], Shown.TSHARK),
        (["1", "2"], ["1"], Shown.RDMAWIRE),
        (["1"], ["1", "2"], Shown.TSHARK),
        (["1"], ["2"], Shown.DIFFERENT),
        (["1"], ["2", "1"], Shown.DIFFERENT),
    ],
)
def test_more_values_after_equal_ones_are_no_other_values(
    mine: list[str], its: list[str], by: Shown
) -> None:
    assert shown_by(mine, its) is by


def test_fields_that_both_show_of_a_malformed_frame_are_compared() -> None:
    cut = SeedFrame(RC[0].data[:56], RC[0].link_type)
    assert DissectorComparison(Other()).judge([cut]) is None
    shown = DissectorComparison(Other("udp.srcport", "7")).judge([cut])
    assert shown is not None
    assert shown.signature == "udp.srcport | another value"


# With tshark.


class OneRun:
    """tshark's values; a capture that was shown before is not shown again."""

    def __init__(self) -> None:
        self._shown: dict[bytes, list[Values]] = {}

    def __call__(self, path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
        data = path.read_bytes()
        if data not in self._shown:
            self._shown[data] = list(tshark_values(path, infos))
        return iter(self._shown[data])


@needs_tshark
@needs_pyshark
def test_all_rows_are_what_tshark_does() -> None:
    cases, reader = [*MUTANTS.values(), *MALFORMED.values()], OneRun()
    assert DissectorComparison(reader).judge_all(cases) == [None] * len(cases)
    without = DissectorComparison(reader, KNOWN_DIFFERENCES, malformed=())
    assert None not in without.judge_all(cases)


@pytest.mark.slow
@needs_tshark
@needs_pyshark
@pytest.mark.parametrize("row", MUTANT_DIFFERENCES, ids=lambda row: row.where)
def test_each_row_for_mutants_is_what_tshark_does(row: KnownDifference) -> None:
    check_row(tshark_values, row)


@needs_tshark
@needs_pyshark
def test_mutants_are_shown_alike_by_tshark() -> None:
    fuzzer = make_fuzzer({"kind": "dissectors"})
    batch = fuzzer.batch(1, 0, 60)
    assert batch.found == []
    assert batch.executed > 60


@needs_tshark
@needs_pyshark
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


@pytest.mark.slow
@needs_tshark
@needs_pyshark
@pytest.mark.parametrize("row", MALFORMED_DIFFERENCES, ids=lambda row: row.where)
def test_each_row_for_malformed_frames_is_what_tshark_does(row: MalformedDifference) -> None:
    check_malformed(tshark_values, row)
