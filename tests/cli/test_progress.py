"""Captures from the command line: with a progress bar where reading takes long."""

from io import BytesIO
from pathlib import Path

import pytest

from rdmawire.capture import Reader, open_capture
from rdmawire.capture.io import InputFile
from rdmawire.cli import progress as source
from rdmawire.cli.progress import dissected, texts_with_bar
from rdmawire.columns.frame_printer import open_printer
from rdmawire.dissect.output import FrameCounts, Lines

CAPTURE = Path(__file__).parents[2] / "captures" / "linux" / "rxe61_rnr.pcap"
FRAMES = 152


SIZE = CAPTURE.stat().st_size


@pytest.mark.parametrize(
    ("progress", "long", "drawn"),
    [(True, 1, True), (True, SIZE, True), (True, SIZE + 1, False), (False, 1, False)],
)
def test_a_bar_is_drawn_for_long_files_if_wanted(
    progress: bool,
    long: int,
    drawn: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(source, "_LONG", long)
    with open_capture(CAPTURE) as reader:
        frames = list(dissected(reader, [4791], progress=progress))
    assert [frame.number for frame in frames] == list(range(1, FRAMES + 1))
    out, err = capsys.readouterr()
    assert out == ""
    assert ("rxe61_rnr" in err) == drawn


@pytest.mark.parametrize(("least", "drawn"), [(1, True), (SIZE + 1, False)])
def test_a_bar_is_drawn_while_texts_are_written(
    least: int,
    drawn: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(source, "_LONG", least)
    printer = open_printer(str(CAPTURE), Lines(), FrameCounts(), [4791])
    assert printer is not None
    texts = [b"before", *printer.texts()]
    found = list(texts_with_bar(iter(texts), str(CAPTURE), lambda: printer.position))
    assert found == texts
    assert printer.position == SIZE
    out, err = capsys.readouterr()
    assert out == ""
    assert ("rxe61_rnr" in err) == drawn


def test_a_name_of_a_file_is_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(source, "_LONG", 1)
    monkeypatch.chdir(tmp_path)
    Path("[").mkdir()
    Path("[/red]").write_bytes(CAPTURE.read_bytes())
    with open_capture("[/red]") as reader:
        assert sum(1 for _ in dissected(reader, [4791], progress=True)) == FRAMES
    assert "[/red]" in capsys.readouterr().err


def test_a_pipe_has_no_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source, "_LONG", 1)
    data = CAPTURE.read_bytes()
    piped = Reader(InputFile(BytesIO(data), "pipe", None))
    assert sum(1 for _ in dissected(piped, [4791], progress=True)) == FRAMES
    assert capsys.readouterr().err == ""


def test_the_ports_are_passed_on() -> None:
    with open_capture(CAPTURE) as reader:
        frames = list(dissected(reader, [1], progress=False))
    assert not any(node.name == "bth" for frame in frames for node in frame.nodes)
