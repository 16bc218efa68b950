"""Where captures are read from."""

import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.capture.io import InputFile, open_input
from rdmawire.errors import CaptureError
from tests.waiting import HANG

from .samples import RECORDS, pcap


class Device:
    """A file whose reads return given bytes."""

    def __init__(self, *gives: bytes | OSError | None) -> None:
        self._gives = list(gives)
        self.closed = False

    def read(self, _: int) -> bytes | None:
        given = self._gives.pop(0)
        if isinstance(given, OSError):
            raise given
        return given

    def readinto(self, buffer: memoryview) -> int | None:
        given = self.read(len(buffer))
        buffer[: len(given or b"")] = given or b""
        return None if given is None else len(given)

    def close(self) -> None:
        self.closed = True


def test_chunks_are_what_is_there() -> None:
    source = InputFile(Device(b"ab", b"c", b""), "device", None)
    assert list(source.chunks()) == [b"ab", b"c"]
    assert source.position == 3


@pytest.mark.parametrize(
    ("gives", "reason"),
    [
        (OSError(5, "Input/output error"), "device: the device failed; check it"),
        (None, "device: is in non-blocking mode and has no data yet"),
    ],
)
def test_what_cannot_be_read_is_an_error(gives: OSError | None, reason: str) -> None:
    chunks = InputFile(Device(b"ab", gives), "device", None).chunks()
    assert next(chunks) == b"ab"
    with pytest.raises(CaptureError, match=reason):
        next(chunks)


@pytest.mark.parametrize("gives", [OSError(5, "Input/output error"), None])
def test_what_fails_midway_leaves_what_was_read(gives: OSError | None) -> None:
    source = InputFile(Device(b"ab", b"c", gives), "device", None)
    buffer = bytearray(9)
    assert source.fill(memoryview(buffer)) == 3
    assert buffer == b"abc" + bytes(6)
    with pytest.raises(CaptureError, match="device: "):
        source.check_end()


def test_a_buffer_is_filled_to_its_end_or_that_of_the_file() -> None:
    source = InputFile(io.BytesIO(b"abcdef"), "file", 6)
    buffer = bytearray(4)
    assert source.fill(memoryview(buffer)) == 4
    with pytest.raises(CaptureError, match="4 of 6 bytes could be read; read it again when"):
        source.check_end()
    assert source.fill(memoryview(buffer)) == 2
    assert buffer == b"efcd"
    source.check_end()


def test_a_closed_source_is_an_error() -> None:
    device = Device(b"ab")
    source = InputFile(device, "device", None)
    source.close()
    assert device.closed
    with pytest.raises(CaptureError, match="device: is closed; open it again"):
        next(source.chunks())


def test_a_file_has_a_size_and_a_pipe_has_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(77))
    source = open_input(file)
    assert source.size == 77
    source.close()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(b"abc",)).start()
    source = open_input(pipe)
    assert source.size is None
    assert b"".join(source.chunks()) == b"abc"
    source.close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", "there is no such file; check its name"),
        (".", "is a folder; name a capture file in it"),
        ("file/below", "a part of its path is no folder; check its name"),
        ("link", "form a loop; correct them, or name the file itself"),
        ("n" * 300, "longer than names of files may be; check it, or shorten it"),
        ("e\0", "is no name of a file: embedded null byte"),
        ("e\udcff", "there is no such file; check its name"),
    ],
)
def test_what_cannot_be_opened_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("link")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CaptureError) as caught:
        open_capture(path)
    assert caught.value.reason.endswith(reason)
    assert caught.value.reason.startswith(repr(path) if "\0" in path else path[:1])
    assert "\n" not in str(caught.value)
    str(caught.value).encode()


def test_a_file_without_read_permission_is_an_error_of_one_line(tmp_path: Path) -> None:
    file = tmp_path / "secret.pcap"
    file.write_bytes(pcap())
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("this user may read every file")
    with pytest.raises(CaptureError, match=r"secret\.pcap: there is no permission to read it"):
        open_capture(file)


def test_permission_refused_by_the_system_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(CaptureError, match="x: there is no permission to read it; have it granted"):
        open_input("x")


def test_a_file_that_is_no_capture_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("no capture")
    closed: list[str] = []
    monkeypatch.setattr(InputFile, "close", lambda source: closed.append(source.name))
    with pytest.raises(CaptureError):
        open_capture(tmp_path / "text")
    assert closed == [str(tmp_path / "text")]


READ = """
import os
from rdmawire.capture import open_capture
with open_capture("-") as reader:
    print(len(list(reader)), reader.name, reader.size, reader.position, reader.compression)
os.fstat(0)
"""


@pytest.mark.parametrize("tool", ["cat", "gzip"])
def test_standard_input_is_read_as_a_pipe(tool: str) -> None:
    packed = subprocess.run([tool], input=pcap(), capture_output=True, check=True).stdout
    done = subprocess.run(
        [sys.executable, "-c", READ], input=packed, capture_output=True, check=True
    )
    words = done.stdout.decode().split()
    expected = f"{len(RECORDS)} standard input None {len(packed)} {'gzip' * (tool == 'gzip')}"
    assert words == expected.split()


def test_standard_input_is_read_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(pcap())
    with file.open() as stream:
        done = subprocess.run(
            [sys.executable, "-c", READ], stdin=stream, capture_output=True, check=True
        )
    size = file.stat().st_size
    assert done.stdout.decode().split()[1:] == ["standard", "input", str(size), str(size)]


def test_standard_input_that_was_replaced_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(pcap()))
    monkeypatch.setattr(sys, "stdin", stream)
    with open_capture("-") as reader:
        assert list(reader) == RECORDS
    assert not stream.buffer.closed


@pytest.mark.parametrize("close", ["sys.stdin = None", "import os; os.close(0)"])
def test_a_closed_standard_input_is_an_error(close: str) -> None:
    script = (
        f"import sys; {close}{READ.replace('with', 'import rdmawire.errors' + chr(10) + 'with')}"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert b"CaptureError: standard input: " in done.stderr


def test_records_come_as_soon_as_they_are_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = pcap()
    reading = threading.Thread(target=lambda: seen.append(open_capture(pipe)))
    seen: list[object] = []
    reading.start()
    with pipe.open("wb", buffering=0) as stream:
        stream.write(data[: 24 + 76])
        reading.join(HANG)
        reader = seen[0]
        assert next(iter(reader)) == RECORDS[0]  # type: ignore[call-overload]
        stream.write(data[24 + 76 :])
    assert list(reader) == RECORDS[1:]  # type: ignore[call-overload]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
