"""Crashes, errors and hangs of tshark, with programs that behave so in its place."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.dissect.fields import FieldInfo
from rdmawire.errors import FuzzError
from rdmawire.fuzz.command_target import write_frames
from rdmawire.fuzz.dissector_comparison import DissectorComparison, is_compared
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.tshark_fields import Values, own_values
from rdmawire.fuzz.tshark_process import TsharkError, pdml_packets, split_packets

CAPTURES = Path(__file__).parents[2] / "captures"

with open_capture(CAPTURES / "golden" / "rc.pcap") as capture:
    SEEDS = [SeedFrame(record.data, record.link_type) for record in capture][:40]
RC = [frame for frame in SEEDS if is_compared(frame)][:6]
POISON = b"\xde\xad\xbe\xef\x05"
BAD = SeedFrame(RC[2].data + POISON)


@pytest.fixture
def tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a program tshark, which is the one that is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def write_program(folder: Path, lines: str) -> None:
    path = folder / "tshark"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def read(tmp_path: Path, **limits: float) -> list[bytes]:
    return list(pdml_packets(write_frames(tmp_path, RC), **limits))  # type: ignore[arg-type]


def test_packets_are_those_of_the_output(tshark: Path, tmp_path: Path) -> None:
    write_program(tshark, "echo '<pdml><packet>one</packet>'; echo '<packet>two</packet></pdml>'")
    assert read(tmp_path) == [b"<packet>one</packet>", b"<packet>two</packet>"]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_packets_are_found_in_blocks_of_any_size(size: int) -> None:
    text = b"<?xml?>\n<pdml>\n<packet>\none</packet>\n\n<packet>two</packet>\n</pdml>\n"
    blocks = (text[at : at + size] for at in range(0, len(text), size))
    assert list(split_packets(blocks)) == [b"<packet>\none</packet>", b"<packet>two</packet>"]


@pytest.mark.parametrize(
    ("lines", "reason", "line"),
    [
        ("kill -SEGV $$", "ended with signal SIGSEGV", ""),
        ("printf 'first\\nlast one\\n\\n' >&2; exit 3", "ended with status 3", "last one"),
        ("echo 'Running as user \"root\"' >&2; exit 3", "ended with status 3", ""),
        ("head -c 300000 /dev/zero >&2; echo >&2; echo end >&2; exit 2", "ended with status 2",
         "end"),
        ("echo 'Dissector bug, protocol X' >&2", "found a bug in one of its dissectors",
         "Dissector bug, protocol X"),
        ("echo '</packet>'", "writes no PDML", ""),
    ],
)  # fmt: skip
def test_a_failure_is_an_error_with_the_last_line(
    lines: str, reason: str, line: str, tshark: Path, tmp_path: Path
) -> None:
    write_program(tshark, lines)
    with pytest.raises(TsharkError) as raised:
        read(tmp_path)
    assert (raised.value.reason, raised.value.line) == (reason, line)
    assert str(raised.value) == (f"tshark {reason}: {line}" if line else f"tshark {reason}")


@pytest.mark.parametrize("lines", ["exec sleep 1000", "exec >&- 2>&-; exec sleep 1000"])
def test_a_hang_ends_after_the_time_that_is_given(lines: str, tshark: Path, tmp_path: Path) -> None:
    write_program(tshark, lines)
    with pytest.raises(TsharkError, match=r"^tshark did not end within 0\.2 s$"):
        read(tmp_path, seconds=0.2)


def test_only_waiting_for_tshark_counts(
    tshark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tshark, "echo '<packet>1</packet>'; echo '<packet>2</packet>'")
    now = [0.0]
    monkeypatch.setattr("rdmawire.fuzz.tshark_process.monotonic", lambda: now[0])
    for _ in pdml_packets(write_frames(tmp_path, RC), seconds=20):
        now[0] += 1000
    assert now == [2000]


@pytest.mark.parametrize("lines", ["yes", "yes '<packet>1</packet>'", "yes >&2"])
def test_output_without_end_is_not_read_on(lines: str, tshark: Path, tmp_path: Path) -> None:
    write_program(tshark, f"exec {lines}")
    with pytest.raises(TsharkError, match=r"^tshark writes more than 1000000 bytes"):
        read(tmp_path, max_output=1_000_000)


def test_a_program_that_cannot_be_started_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FuzzError, match="tshark: cannot run it: No such file or directory"):
        read(tmp_path)


class Failing:
    """Shows what the dissector shows, but fails with captures that contain :data:`POISON`."""

    def __init__(self, reason: str = "ended with signal SIGSEGV", poison: bytes = POISON) -> None:
        self._reason = reason
        self._poison = poison
        self.runs = 0

    def __call__(self, path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
        self.runs += 1
        if self._poison in path.read_bytes():
            raise TsharkError(self._reason, f"at {self.runs}")
        return (values for _, values in own_values(path, infos))


def test_a_failure_is_a_violation_of_the_frame_that_causes_it() -> None:
    reader = Failing()
    cases = [[RC[0]], RC[:2], [RC[0], BAD, RC[1]], [], RC[3:], [BAD]]
    shown = DissectorComparison(reader).judge_all(cases)
    assert [one is not None for one in shown] == [False, False, True, False, False, True]
    assert shown[2] is not None
    assert (shown[2].place, shown[2].what) == (1, "tshark")
    assert shown[2].expected == "tshark shows each frame"
    assert shown[2].happened.startswith("tshark ended with signal SIGSEGV: at ")
    assert shown[2].signature == "tshark ended with signal SIGSEGV | at N"
    assert shown[5] is not None
    assert shown[5].signature == shown[2].signature
    assert reader.runs < 20


def test_differences_in_other_frames_of_a_batch_with_a_failure_are_found() -> None:
    field = "infiniband.bth.psn"

    class Differing(Failing):
        def __call__(self, path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
            for values in super().__call__(path, infos):
                yield values | ({field: ["7"]} if field in values else {})

    shown = DissectorComparison(Differing()).judge_all([[BAD], [RC[0]]])
    assert shown[0] is not None
    assert shown[0].what == "tshark"
    assert shown[1] is not None
    assert shown[1].what == "field"


def test_a_tshark_that_fails_without_frames_is_an_error() -> None:
    with pytest.raises(FuzzError, match=r"^tshark ended with status 127: at 2: with a capture"):
        DissectorComparison(Failing("ended with status 127", b"")).judge(RC)


def test_after_some_failures_the_other_cases_of_the_batch_count_as_good() -> None:
    reader = Failing()
    shown = DissectorComparison(reader).judge_all([[BAD]] * 200)
    assert sum(one is not None for one in shown) == 20
    assert reader.runs < 60


def test_a_failure_that_no_half_of_the_cases_shows_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Many(Failing):
        def __call__(self, path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
            found = list(super().__call__(path, infos))
            if len(found) > 3:
                raise TsharkError("did not end within 60 s")
            return iter(found)

    assert DissectorComparison(Many()).judge_all([RC[:2], RC[2:4]]) == [None, None]
    assert [record.getMessage() for record in caplog.records] == [
        "tshark did not end within 60 s; not if half of the same 2 cases are read"
    ]


def test_missing_frames_are_a_violation() -> None:
    def short(path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
        return iter([values for _, values in own_values(path, infos)][:2])

    shown = DissectorComparison(short).judge(RC)
    assert shown is not None
    assert shown.place == 2
    assert shown.happened == "tshark does not show each frame: 2 of 3 frames"
    assert shown.signature == "tshark does not show each frame | N of N frames"
