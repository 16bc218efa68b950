"""Tables from the command line: what is written, where, and what is refused."""

import io
import signal
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from rdmawire.cli import dissect as at_once
from rdmawire.columns import frame_printer, read_columns
from rdmawire.columns.frame_printer import FramePrinter, open_printer
from tests.cli.command import CAPTURES, RDMAWIRE, RNR, WRITE, broken, rdmawire, refused
from tests.waiting import HANG, asleep, wait_until
from tests.writing import unfinished


def test_csv_goes_to_standard_output() -> None:
    words = ("-T", "csv", "-e", "frame.number", "-e", "infiniband.bth.psn")
    done = rdmawire("dissect", *words, "--from", "17", "--to", "18", RNR)
    assert done.stdout.splitlines() == ['"frame.number","infiniband.bth.psn"', "17,256", "18,256"]


def test_parquet_goes_to_a_file_with_the_usual_fields(tmp_path: Path) -> None:
    path = tmp_path / "both.parquet"
    done = rdmawire("dissect", "-T", "parquet", "-w", str(path), RNR, WRITE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wanted = pa.concat_tables([read_columns(name).arrow() for name in (RNR, WRITE)])
    assert parquet.read_table(path).to_pylist() == wanted.to_pylist()


def test_arrow_is_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "stream.arrow"
    rdmawire("dissect", "-T", "arrow", "-e", "ip.src", "-c", "5", "-o", str(path), RNR)
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        assert stream.read_all().num_rows == 5


def test_filters_windows_and_fpdus() -> None:
    siw = str(CAPTURES / "linux" / "siw612crc_rping.pcap")
    words = ("-T", "csv", "--row", "fpdu", "-e", "frame.number", "-e", "iwarp_rdma.opcode")
    done = rdmawire("dissect", *words, "-Y", "ip.src == 10.77.0.1", "--to", "13", siw)
    table = csv.read_csv(io.BytesIO(done.stdout.encode())).to_pydict()
    assert set(table["frame.number"]) <= set(range(1, 14))
    assert table["iwarp_rdma.opcode"]


def test_what_stands_before_damage_is_written(tmp_path: Path) -> None:
    cut, path = tmp_path / "cut.pcap", tmp_path / "out.parquet"
    cut.write_bytes(Path(RNR).read_bytes()[:-3])
    line = refused("dissect", "-T", "parquet", "-o", str(path), str(cut), RNR, status=1)
    assert "claims" in line
    assert parquet.read_table(path).num_rows == 151 + 152


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "x", RNR), "-w and --row go with -T csv, parquet or arrow"),
        (("--row", "fpdu", RNR), "-w and --row go with -T csv, parquet or arrow"),
        (("-T", "csv", "-q", RNR), "only write tables"),
        (("-T", "csv", "--fail-on-malformed", RNR), "only write tables"),
        (("-T", "csv", "-V", RNR), "-V goes with -T text"),
        (("-T", "csv", "-x", RNR), "-x goes with -T text"),
        (("-T", "csv", "-E", "header=y", RNR), "-E goes with -T fields"),
    ],
)
def test_options_that_go_with_other_formats(words: tuple[str, ...], message: str) -> None:
    assert message in refused("dissect", *words, status=2)


def test_an_output_that_cannot_be_written_is_one_line() -> None:
    line = refused("dissect", "-T", "csv", "-o", "/nowhere/x.csv", RNR, status=1)
    assert line.endswith("its folder does not exist; create it first")


def test_no_capture_is_replaced_by_what_is_written_of_it(tmp_path: Path) -> None:
    path, link = tmp_path / "in.pcap", tmp_path / "link"
    path.write_bytes(Path(RNR).read_bytes())
    link.hardlink_to(path)
    for output in (str(path), str(link)):
        line = refused("dissect", "-T", "csv", "-o", output, RNR, str(path), status=2)
        assert "is a capture to read; name another file with -w" in line
    with path.open("rb") as stdin:
        words = ("dissect", "-T", "csv", "-o", str(path))
        done = subprocess.run([*RDMAWIRE, *words], stdin=stdin, check=False, capture_output=True)
    assert done.returncode == 2
    assert path.read_bytes() == Path(RNR).read_bytes()


def test_an_earlier_file_stays_where_nothing_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("earlier")
    assert "no such file" in refused("dissect", "-T", "csv", "-o", str(path), "none", status=1)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]


def test_a_capture_of_no_frames_makes_a_table_of_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    empty = broken(tmp_path, Path(RNR).read_bytes()[:24])
    words = ("dissect", "-T", "csv", "-e", "ip.src", "-o", str(path))
    assert rdmawire(*words, empty).returncode == 0
    assert path.read_text() == '"ip.src"\n'


def test_a_file_without_a_name_is_not_standard_output() -> None:
    assert "is a folder" in refused("dissect", "-T", "csv", "-o", "", RNR, status=1)
    assert "-w and --row go with" in refused("dissect", "-o", "", RNR, status=2)


def test_captures_behind_the_last_row_wanted_are_not_read() -> None:
    done = rdmawire("dissect", "-T", "csv", "-e", "frame.number", "-c", "152", RNR, "none")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 153


def test_rows_of_what_is_still_captured_come_when_there_are_enough() -> None:
    words = ("dissect", "-T", "csv", "-e", "frame.number", "-c", "2", "-")
    pipe = subprocess.PIPE
    with subprocess.Popen([*RDMAWIRE, *words], stdin=pipe, stdout=pipe) as running:
        assert running.stdin is not None
        running.stdin.write(Path(RNR).read_bytes())
        running.stdin.flush()
        assert running.wait(HANG) == 0


FORMS = ["csv", "parquet", "arrow"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize(
    ("form", "number"),
    [
        *zip(FORMS, SIGNALS, strict=True),
        *(
            pytest.param(form, number, marks=pytest.mark.slow)
            for form, number in product(FORMS, SIGNALS)
            if FORMS.index(form) != SIGNALS.index(number)
        ),
    ],
)
def test_a_signal_leaves_nothing_of_a_table_and_keeps_the_earlier_file(
    form: str, number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    path.write_text("earlier")
    words = ("dissect", "-T", form, "-e", "frame.number", "-o", str(path), "-")
    pipe = subprocess.PIPE
    with subprocess.Popen([*RDMAWIRE, *words], stdin=pipe, stderr=pipe) as running:
        assert running.stdin is not None
        running.stdin.write(Path(RNR).read_bytes())
        running.stdin.flush()
        wait_until(lambda: unfinished(tmp_path, running.pid) and asleep(running))
        running.send_signal(number)
        _, errors = running.communicate(timeout=HANG)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]
    assert running.returncode == (130 if number == signal.SIGINT else -number)
    assert errors == (b"rdmawire: interrupted\n" if number == signal.SIGINT else b"")


def test_a_missing_library_is_named_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError")
    done = rdmawire("dissect", "-T", "csv", RNR, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert "pip install 'rdmawire[columns]'" in done.stderr


def test_fields_are_the_same_at_once_and_one_by_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rdmawire.cli.dissect import command

    words = ["-T", "fields", "-e", "frame.number", "-e", "infiniband.bth.psn", "-E", "header=y"]
    words += ["-Y", "infiniband.bth.psn >= 256", RNR]
    printed, opened = [], []

    def opens(*args: Any, **more: Any) -> FramePrinter | None:
        opened.append(args)
        return open_printer(*args, **more)

    monkeypatch.setattr(frame_printer, "open_printer", opens)
    for large in (1 << 40, 0):
        monkeypatch.setattr(at_once, "_LARGE", large)
        command.main(words, standalone_mode=False)
        assert bool(opened) is (large == 0)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) > 10
