"""Writing captures."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmawire.capture import COMMENT, Interface, LinkType, Record, create_capture, open_capture
from rdmawire.errors import CaptureError
from tests.writing import unfinished

from . import samples
from .samples import RECORDS, SECOND, read

SUFFIXES = {"": "", ".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".lz4": "lz4"}


@pytest.mark.parametrize(
    ("form", "order", "nanoseconds", "suffix"),
    list(product(("pcap", "pcapng"), ("little", "big"), (True, False), SUFFIXES)),
)
def test_what_is_written_is_read(
    tmp_path: Path, form: str, order: str, nanoseconds: bool, suffix: str
) -> None:
    path = tmp_path / f"capture.{form}{suffix}"
    with create_capture(path, byte_order=order, nanoseconds=nanoseconds) as writer:
        assert writer.format == form
        for record in RECORDS:
            writer.write(record)
    with open_capture(path) as reader:
        assert (reader.format, reader.compression) == (form, SUFFIXES[suffix])
        assert list(reader) == RECORDS
        assert reader.interfaces[0].resolution == (SECOND if nanoseconds else 1_000_000)
    assert os.listdir(tmp_path) == [path.name]


@given(content=st.lists(samples.records(), max_size=4), form=st.sampled_from(("pcap", "pcapng")))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
def test_any_records_are_written(tmp_path: Path, content: list[Record], form: str) -> None:
    path = tmp_path / "x"
    with create_capture(path, format=form) as writer:
        for record in content:
            writer.write(record)
    assert read(path.read_bytes()) == (content, None)


@pytest.mark.parametrize(
    ("name", "form", "compression"),
    [
        ("x", "pcap", ""),
        ("x.cap", "pcap", ""),
        ("x.PCAPNG", "pcapng", ""),
        ("x.pcapng.GZ", "pcapng", "gzip"),
        ("x.gz", "pcap", "gzip"),
        ("x.pcapng.txt", "pcap", ""),
    ],
)
def test_suffixes_choose_the_format(tmp_path: Path, name: str, form: str, compression: str) -> None:
    with create_capture(tmp_path / name) as writer:
        writer.write(RECORDS[0])
    with open_capture(tmp_path / name) as reader:
        assert (reader.format, reader.compression) == (form, compression)


def test_names_may_be_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "x.pcapng.gz")
    with create_capture(path) as writer:
        writer.write(RECORDS[0])
    with open_capture(path) as reader:
        assert (reader.format, reader.compression) == ("pcapng", "gzip")
        assert reader.name == os.fsdecode(path)


def test_arguments_go_before_suffixes(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng.gz"
    with create_capture(path, format="pcap", compression="lz4") as writer:
        writer.write(RECORDS[0])
    with open_capture(path) as reader:
        assert (reader.format, reader.compression) == ("pcap", "lz4")
    with create_capture(path, compression="") as writer:
        pass
    with open_capture(path) as reader:
        assert (reader.format, reader.compression) == ("pcapng", "")


@pytest.mark.parametrize(
    ("create", "reason"),
    [
        (lambda p: create_capture(p, format="erf"), "format: 'erf' is not one of pcap, pcapng"),
        (lambda p: create_capture(p, byte_order="<"), "byte_order: '<' is not one of little, big"),
        (
            lambda p: create_capture(p, compression="bz2"),
            "compression: 'bz2' is not one of gzip, xz, zstd, lz4",
        ),
        (
            lambda p: create_capture(p, link_type=-1),
            "link_type: -1 is not an integer from 0 to 65535",
        ),
        (lambda p: create_capture(p, interfaces=[Interface()]), "interfaces: a pcap cannot"),
        (
            lambda p: create_capture(p, format="pcapng", interfaces=[Interface(resolution=3)]),
            "Interface.resolution: 3 units",
        ),
        (
            lambda p: create_capture(p, format="pcapng", interfaces=[None]),  # type: ignore[list-item]
            "interfaces: None (NoneType) is not of type Interface",
        ),
    ],
)
def test_what_cannot_be_asked_for_creates_nothing(
    tmp_path: Path, create: Callable[[Path], object], reason: str
) -> None:
    with pytest.raises(CaptureError) as caught:
        create(tmp_path / "x")
    assert caught.value.reason.startswith(reason)
    assert os.listdir(tmp_path) == []


def test_interfaces_comments_and_options_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    given_ = [Interface(LinkType.INFINIBAND, 0, "mlx5_0"), Interface(name="eth0", resolution=1000)]
    options = ((COMMENT, b"first"), (COMMENT, b"second"), (2, b"\1\0\0\0"))
    with create_capture(path, byte_order="big", interfaces=given_) as writer:
        added = writer.add_interface(Interface(LinkType.RAW, name="tun0"))
        assert added == 2
        writer.write(Record(b"a", 7_000_000, 1, 1, 1, options))
        writer.write(Record(b"b", 0, 1, LinkType.RAW, added))
        assert [interface.name for interface in writer.interfaces] == ["mlx5_0", "eth0", "tun0"]
    with open_capture(path) as reader:
        first, second = reader
        assert first == Record(b"a", 7_000_000, 1, 1, 1, options)
        assert first.comments == ("first", "second")
        assert second.interface == 2
        assert reader.interfaces == [*given_, Interface(LinkType.RAW, name="tun0")]


@pytest.mark.parametrize(("link_type", "links"), [(None, [247]), (247, [247]), (1, [1, 247])])
def test_a_link_type_that_is_given_is_declared_first(
    tmp_path: Path, link_type: int | None, links: list[int]
) -> None:
    path = tmp_path / "x.pcapng"
    with create_capture(path, link_type=link_type) as writer:
        writer.write(Record(b"", 0, 0, 247))
    with open_capture(path) as reader:
        list(reader)
        assert [interface.link_type for interface in reader.interfaces] == links


def test_a_record_that_is_refused_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    with create_capture(path) as writer:
        writer.write(RECORDS[0])
        with pytest.raises(CaptureError, match=r"Record\.link_type: 247 in a pcap of link type 1"):
            writer.write(Record(b"", 0, 0, 247))
        writer.write(RECORDS[1])
    assert read(path.read_bytes()) == (RECORDS[:2], None)


def write_and_raise(path: Path, error: type[BaseException]) -> None:
    with create_capture(path) as writer:
        for _ in range(30_000):
            writer.write(RECORDS[0])
        raise error("on the way")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, CaptureError])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_exception_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException], suffix: str
) -> None:
    path = tmp_path / f"x.pcap{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(error):
        write_and_raise(path, error)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_an_interrupt_while_the_file_is_completed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt), create_capture(tmp_path / "x") as writer:
        writer.write(RECORDS[0])
    assert os.listdir(tmp_path) == []


def test_the_file_is_synchronised_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: names.append(os.listdir(tmp_path)))
    with create_capture(tmp_path / "x") as writer:
        writer.write(RECORDS[0])
    assert len(names) == 1
    assert "x" not in names[0]
    assert os.listdir(tmp_path) == ["x"]


def test_a_name_that_cannot_be_given_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", refuse)
    writer = create_capture(tmp_path / "x")
    with pytest.raises(CaptureError, match="x: its file system is read-only; write elsewhere"):
        writer.close()
    assert (tmp_path / "x").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_full_device_is_an_error_and_ends_the_writing() -> None:
    writer = create_capture("/dev/full")
    writer.write(RECORDS[0])
    reason = "/dev/full: no space is left on the device; free some, or write elsewhere"
    with pytest.raises(CaptureError) as caught:
        writer.flush()
    assert caught.value.reason == reason
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(CaptureError, match=f"^{reason}; nothing is written"):
        writer.write(RECORDS[0])
    with pytest.raises(CaptureError, match=r"^/dev/full: was not written: no space is left"):
        writer.close()


FILL = """
import resource, signal, sys
from rdmawire.capture import Record, create_capture
from rdmawire.errors import CaptureError
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
try:
    with create_capture(sys.argv[1]) as writer:
        for _ in range(40_000):
            writer.write(Record(bytes(100), 0, 100, 1))
except CaptureError as error:
    print(error)
"""


def test_a_file_that_may_grow_no_further_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", FILL, path], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{path}: it would be longer than files may be; raise that limit")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.pcap"]


WAIT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from rdmawire.capture import Record, create_capture
with create_capture(sys.argv[1]) as writer:
    for _ in range(20_000):
        writer.write(Record(bytes(100), 0, 100, 1))
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_an_interrupt_from_the_keyboard_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAIT, tmp_path / "x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as writing:
        assert writing.stdout is not None
        assert writing.stdout.readline() == b"writing\n"
        assert len(unfinished(tmp_path, writing.pid)) == 1
        writing.send_signal(signal.SIGINT)
        _, errors = writing.communicate()
    assert writing.returncode == -signal.SIGINT
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert os.listdir(tmp_path) == []


def test_what_is_written_goes_to_the_disk_on_the_way(tmp_path: Path) -> None:
    with create_capture(tmp_path / "x") as writer:
        for _ in range(20_000):
            writer.write(RECORDS[0])
        assert sum(file.st_size for file in unfinished(tmp_path)) >= 1 << 20


def test_closing_twice_is_no_error_and_writing_then_is(tmp_path: Path) -> None:
    writer = create_capture(tmp_path / "x")
    writer.close()
    writer.close()
    with pytest.raises(CaptureError, match="x: is closed; nothing is written"):
        writer.write(RECORDS[0])
    with pytest.raises(CaptureError, match="x: is closed; nothing is written"):
        writer.flush()
    with pytest.raises(CaptureError, match="is closed"):
        writer.add_interface(Interface())


def test_what_is_given_up_does_not_appear(tmp_path: Path) -> None:
    writer = create_capture(tmp_path / "x")
    writer.discard()
    writer.close()
    assert os.listdir(tmp_path) == []


STREAM = """
import os, sys
from rdmawire.capture import Record, create_capture
print("before")
with create_capture("-", format=sys.argv[1], compression=sys.argv[2]) as writer:
    for time in range(3):
        writer.write(Record(b"data", time, 4, 1))
os.fstat(1)
"""


@pytest.mark.parametrize(("form", "compression"), [("pcap", ""), ("pcapng", "zstd")])
def test_standard_output_is_written_as_it_comes(form: str, compression: str) -> None:
    script = [sys.executable, "-c", STREAM, form, compression]
    done = subprocess.run(script, capture_output=True, check=True)
    found, damage = read(done.stdout.removeprefix(b"before\n"))
    assert damage is None
    assert found == [Record(b"data", time, 4, 1) for time in range(3)]


def test_a_full_standard_output_is_reported_once() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", STREAM.replace('print("before")', ""), "pcap", ""],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(
        b"CaptureError: standard output: no space is left on the device;"
        b" free some, or write elsewhere"
    )
    assert done.stderr.count(b"Traceback") == 2


def test_standard_output_that_was_replaced_is_written(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    with create_capture("-") as writer:
        writer.write(RECORDS[0])
        writer.flush()
        assert len(capsysbinary.readouterr().out) == 24 + 76
    sys.stdout.write("still open")
    sys.stdout.flush()
    assert capsysbinary.readouterr().out == b"still open"


def tshark(path: Path, *fields: str) -> list[list[str]]:
    """What tshark says of these fields, a row for each frame."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    wanted = [word for field in fields for word in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "order"), [("x.pcap", "big"), ("x.pcap.gz", "little"), ("x.pcapng", "big")]
)
def test_tshark_reads_what_is_written(tmp_path: Path, name: str, order: str) -> None:
    path = tmp_path / name
    content = [record for record in RECORDS if record.data and record.length >= len(record.data)]
    if "ng" in name:
        content = [record._replace(options=((COMMENT, b"noted"),)) for record in content]
    with create_capture(path, byte_order=order) as writer:
        for record in content:
            writer.write(record)
    fields = ("frame.time_epoch", "frame.cap_len", "frame.len", "frame.comment")
    for row, record in zip(tshark(path, *fields), content, strict=True):
        seconds, rest = divmod(record.time_ns, SECOND)
        comment = "noted" if record.options else ""
        lengths = [str(len(record.data)), str(record.length)]
        assert row == [f"{seconds}.{rest:09d}", *lengths, comment]
