"""Seed corpora: which captures of a folder are read, and how much of them."""

import errno
import gzip
import logging
import os
from pathlib import Path

import pytest

from rdmawire.capture import LinkType, Record, create_capture
from rdmawire.errors import FuzzError
from rdmawire.fuzz import seed_corpus
from rdmawire.fuzz.seed_corpus import corpus_of


def capture(path: Path, frames: int, size: int = 60) -> None:
    """Write a capture of ``frames`` frames of ``size`` bytes."""
    with create_capture(path) as writer:
        for number in range(frames):
            writer.write(Record(bytes(size), number, size, LinkType.ETHERNET))


def test_of_a_long_capture_the_first_frames_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(seed_corpus, "MAX_FRAMES_OF_CAPTURE", 5)
    capture(tmp_path / "plain.pcap", 9)
    packed = tmp_path / "packed.pcap"
    packed.write_bytes(gzip.compress((tmp_path / "plain.pcap").read_bytes()))
    capture(tmp_path / "short.pcap", 5)
    with caplog.at_level(logging.WARNING):
        corpus = corpus_of(tmp_path)
    assert [len(frames) for frames in corpus.captures] == [5, 5, 5]
    assert caplog.messages == [
        f"seed corpus: {path}: the first 5 frames are used"
        for path in (packed, tmp_path / "plain.pcap")
    ]


@pytest.mark.parametrize(
    ("limit", "value", "lengths"),
    [
        ("MAX_BYTES_OF_CAPTURE", 100, [2, 2, 2]),
        ("MAX_FRAMES", 6, [4, 2]),
        ("MAX_BYTES", 241, [4, 1]),
        ("MAX_BYTES", 240, [4]),
    ],
)
def test_frames_and_bytes_of_all_captures_are_limited(
    limit: str,
    value: int,
    lengths: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(seed_corpus, limit, value)
    for name in "abc":
        capture(tmp_path / f"{name}.pcap", 4)
    with caplog.at_level(logging.WARNING):
        corpus = corpus_of(tmp_path)
    assert [len(frames) for frames in corpus.captures] == lengths
    assert caplog.messages


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(tmp_path / "a.pcap", 1)
    inner = tmp_path / "inner"
    inner.mkdir()
    scandir = os.scandir

    def refused(path: str) -> object:
        if Path(path) == inner:
            raise PermissionError(errno.EACCES, "Permission denied", str(inner))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(FuzzError, match=f"^seed corpus: {inner}: Permission denied$"):
        corpus_of(tmp_path)
