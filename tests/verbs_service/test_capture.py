"""Captures that cannot be written to their end: the service goes on, and prints that once."""

import os
from errno import ENOSPC
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest

from rdmawire.capture import open_capture
from rdmawire.verbs_service import Capture


class FullDisk:
    """A file on a disk that has room for ``room`` bytes more."""

    def __init__(self, file: Any, room: int) -> None:
        self.file = file
        self.room = room

    def write(self, data: memoryview) -> int:
        if not self.room:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        written: int = self.file.write(data[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("suffix", [".pcap", ".pcapng"])
@pytest.mark.parametrize("room", [0, 100, 300, 5000])
def test_a_full_disk_ends_the_capture_with_a_whole_frame(
    tmp_path: Path, room: int, suffix: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"live{suffix}"
    capture = Capture(path)
    capture._file = FullDisk(capture._file, room)  # type: ignore[assignment]
    for number in range(200):
        capture.write([bytes(60)], number)
        capture.flush()
    capture.close()
    assert capfd.readouterr().err == (
        f"rdmawire verbs: capture {path}: No space left on device: it ends here\n"
    )
    if path.stat().st_size:
        with open_capture(path) as packets:
            assert {len(record.data) for record in packets} <= {60}
    assert path.stat().st_size <= room


def test_a_reader_that_takes_nothing_holds_up_the_end_for_a_while_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdmawire.verbs_service.capture._READER_TIMEOUT", 0)
    monkeypatch.setattr("rdmawire.verbs_service.capture._POLL_MS", 1)
    path = tmp_path / "live.fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    capture = Capture(path)
    for _ in range(100):
        capture.write([bytes(1000)], 0)
    Timer(0.05, capture.limit_wait).start()
    capture.close()  # a pipe has room for 64 KiB
    assert os.read(reader, 1000)
    os.close(reader)
    assert "live.fifo: its reader takes nothing: it ends here" in capfd.readouterr().err


def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    path = tmp_path / "live.fifo"
    os.mkfifo(path)
    received = []

    def read() -> None:
        with path.open("rb") as file:
            while data := file.read(1000):
                received.append(data)

    thread = Thread(target=read)
    thread.start()
    capture = Capture(path)
    for _ in range(300):
        capture.write([bytes(1000)], 0)
    capture.close()
    thread.join()
    assert len(b"".join(received)) == 24 + 300 * 1016


def test_a_reader_that_goes_away_ends_the_capture(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    capture = Capture(path)
    capture.write([bytes(60)], 0)
    capture.flush()
    assert os.read(reader, 1000)
    os.close(reader)
    for _ in range(3):
        capture.write([bytes(60)], 1)
        capture.flush()
    capture.close()
    assert capfd.readouterr().err == ""
