"""Runs over captures: what ends one file does not end the others."""

import sys
from collections.abc import Iterable, Iterator

import pytest

from rdmawire.capture import Reader
from rdmawire.cli import dissect as captures
from rdmawire.cli.dissect import Demands, DissectOutput, FileDissection
from rdmawire.cli.progress import dissected
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.output import CountLines
from rdmawire.dissect.select import Window
from tests.cli.command import RNR, WRITE


def test_a_file_that_takes_too_much_memory_is_named_and_the_next_one_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def frames(reader: Reader, ports: Iterable[int], *, progress: bool) -> Iterator[Dissection]:
        if reader.name == RNR:
            raise MemoryError
        yield from dissected(reader, ports, progress=progress)

    monkeypatch.setattr(captures, "dissected", frames)
    show = DissectOutput(None, CountLines(), sys.stdout)
    status = FileDissection(show, Window(None, None), None, [4791], Demands()).files(
        [RNR, WRITE], progress=False
    )
    out, err = capsys.readouterr()
    assert status == 1
    assert err == f"rdmawire: {RNR}: out of memory for a frame\n"
    assert out.startswith(f"{WRITE}: ")
