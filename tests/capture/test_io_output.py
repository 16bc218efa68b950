"""Where captures are written to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdmawire.capture import io as module
from rdmawire.capture.io import AtomicFile, OutputFile, open_output
from rdmawire.errors import CaptureError
from tests.writing import has_unnamed_files, unfinished


class Device:
    """A file that accepts a given number of bytes in each write."""

    def __init__(self, *takes: int | None) -> None:
        self._takes = list(takes)
        self.taken = b""
        self.closed = False

    def write(self, data: memoryview) -> int | None:
        takes = self._takes.pop(0)
        self.taken += data[: takes or 0]
        return takes

    def close(self) -> None:
        self.closed = True


def test_bytes_are_written_until_all_are_taken() -> None:
    device = Device(1, 3, 2)
    OutputFile(device, "device").write(b"abcdef")
    assert device.taken == b"abcdef"


def test_a_file_that_takes_nothing_now_is_an_error() -> None:
    with pytest.raises(OSError, match="takes no bytes now"):
        OutputFile(Device(2, None), "device").write(b"abcdef")


@pytest.mark.usefixtures("flag")
def test_the_name_appears_when_all_is_written(tmp_path: Path) -> None:
    target = tmp_path / "x"
    output = open_output(target)
    output.write(b"abc")
    assert output.name == str(target)
    assert not target.exists()
    output.commit()
    assert target.read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.usefixtures("flag")
def test_what_was_there_stays_until_then_and_if_it_is_given_up(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    output = open_output(target)
    output.write(b"new")
    assert target.read_bytes() == b"old"
    output.discard()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.usefixtures("flag")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        output = open_output(tmp_path / "x")
    finally:
        os.umask(before)
    output.commit()
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.fixture(params=[os.O_TMPFILE, 0], ids=["unnamed", "named"])
def flag(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Whether files are begun without a name; 0 is how a system without such files is."""
    monkeypatch.setattr(module, "_O_TMPFILE", request.param)
    return int(request.param)


@pytest.mark.usefixtures("flag")
@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "x"
    target.touch()
    target.chmod(mode | 0o200)
    output = open_output(target)
    (part,) = unfinished(tmp_path)
    assert part.st_mode & 0o777 == mode | 0o200
    output.commit()
    assert target.stat().st_mode & 0o777 == mode | 0o200


@pytest.mark.usefixtures("flag")
def test_permissions_that_cannot_be_kept_leave_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "x").touch()
    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(CaptureError, match="no permission"):
        open_output(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.usefixtures("flag")
def test_what_a_link_points_at_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder / "file")
    output = open_output(link)
    output.write(b"abc")
    output.commit()
    assert link.is_symlink()
    assert (folder / "file").read_bytes() == b"abc"


def test_a_device_is_written_to_and_not_replaced() -> None:
    output = open_output("/dev/null")
    assert type(output) is OutputFile
    output.write(b"abc")
    output.commit()
    assert Path("/dev/null").is_char_device()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reading:
        output = open_output(pipe)
        output.write(b"abc")
        output.commit()
        assert reading.communicate()[0] == b"abc"
    assert pipe.is_fifo()


def test_a_pipe_that_only_its_descriptor_names_is_written_to() -> None:
    reading, writing = os.pipe()
    output = open_output(f"/dev/fd/{writing}")
    os.close(writing)
    output.write(b"abc")
    output.commit()
    with open(reading, "rb") as file:
        assert file.read() == b"abc"


@pytest.mark.usefixtures("flag")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing/x", "missing/x: its folder does not exist; create it first"),
        (".", ".: is a folder; name a file in it"),
        ("file/x", "file/x: a part of its path is no folder; check its name"),
        ("e\0", "'e\\x00' is no name of a file: embedded null byte"),
        (
            "n" * 300,
            "n" * 300 + ": its name is longer than names of files may be; check it, or shorten it",
        ),
    ],
)
def test_what_cannot_be_created_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CaptureError) as caught:
        open_output(path)
    assert caught.value.reason == reason
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_may_not_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    with pytest.raises(CaptureError, match="there is no permission to write it or in its folder"):
        open_output(target)
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_has_no_name_before_it_is_whole(tmp_path: Path) -> None:
    if not has_unnamed_files(tmp_path):
        pytest.skip("this file system has no O_TMPFILE")
    (tmp_path / "x").write_bytes(b"old")
    for name in ("x", "y"):
        output = open_output(tmp_path / name)
        output.write(b"new")
        assert os.listdir(tmp_path) == ["x"]
        output.discard()
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_that_appears_meanwhile_is_replaced(tmp_path: Path, flag: int) -> None:
    output = AtomicFile(tmp_path / "x", "x")
    assert len(os.listdir(tmp_path)) == (0 if flag and has_unnamed_files(tmp_path) else 1)
    output.write(b"new")
    (tmp_path / "x").write_bytes(b"old")
    output.commit()
    assert (tmp_path / "x").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.usefixtures("flag")
def test_what_cannot_take_its_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    (tmp_path / "x").write_bytes(b"old")
    output = open_output(tmp_path / "x")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="Input/output"):
        output.commit()
    output.discard()
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_where_proc_is_missing_files_have_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_descriptor", lambda _: "/nowhere/1")
    output = open_output(tmp_path / "x")
    output.write(b"abc")
    assert len(os.listdir(tmp_path)) == 1
    output.commit()
    assert os.listdir(tmp_path) == ["x"]


def test_giving_up_is_never_an_error(tmp_path: Path, flag: int) -> None:
    output = AtomicFile(tmp_path / "x", "x")
    for part in tmp_path.iterdir():
        part.unlink()
    output.discard()
    output.discard()
    with pytest.raises(ValueError, match="closed file"):
        output.write(b"abc")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("close", ["sys.stdout = None", "import os; os.close(1)"])
def test_a_closed_standard_output_is_an_error(close: str) -> None:
    script = f"import sys\n{close}\nfrom rdmawire.capture.io import open_output\nopen_output('-')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert b"CaptureError: standard output: " in done.stderr
