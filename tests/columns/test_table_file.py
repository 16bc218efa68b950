"""Columns as files that other tools read: what is read back is what was written."""

import io
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from rdmawire.columns import DEFAULT_FIELDS, iter_columns, read_columns
from rdmawire.columns.arrow import table_file

CAPTURES = Path(__file__).parents[2] / "captures"
RNR = CAPTURES / "linux" / "rxe61_rnr.pcap"


def written(form: str, path: Path, fields: tuple[str, ...] = DEFAULT_FIELDS) -> bytes:
    octets = io.BytesIO()
    blocks = [block.at(slice(start, start + 50)) for block in iter_columns(path, fields)
              for start in range(0, block.rows, 50)]  # fmt: skip
    file = table_file(form, octets, blocks[0].at(slice(0)))
    for block in blocks:
        file.write(block)
    file.close()
    return octets.getvalue()


def test_parquet_and_arrow_hold_the_columns() -> None:
    wanted = read_columns(RNR).arrow().to_pydict()
    assert parquet.read_table(io.BytesIO(written("parquet", RNR))).to_pydict() == wanted
    with pa.ipc.open_stream(written("arrow", RNR)) as stream:
        assert stream.read_all().to_pydict() == wanted


def test_csv_is_text_that_reads_back() -> None:
    names = ("frame.number", "frame.time_relative", "ip.src", "infiniband.aeth.msn")
    octets = written("csv", RNR, names)
    assert octets.splitlines()[0].decode() == ",".join(f'"{name}"' for name in names)
    assert octets.splitlines()[18] == b'18,"0.041604000","10.77.0.1",0'
    assert octets.splitlines()[1] == b'1,"0.000000000","10.77.0.2",'
    table = csv.read_csv(io.BytesIO(octets)).to_pydict()
    assert table["frame.number"] == list(range(1, 153))


def test_octets_are_digits_in_csv() -> None:
    octets = written("csv", RNR, ("frame.number", "infiniband.bth"))
    assert octets.splitlines()[18] == b'18,"1100ffff0000003a00000100"'


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_a_file_of_no_rows_names_its_columns(form: str) -> None:
    octets = io.BytesIO()
    nothing = read_columns(RNR, ["ip.src", "frame.number"]).at(slice(0))
    table_file(form, octets, nothing).close()
    assert b"frame.number" in octets.getvalue()


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_an_abandoned_file_gets_no_end(form: str) -> None:
    octets = io.BytesIO()
    columns = read_columns(RNR, ["ip.src"])
    file = table_file(form, octets, columns)
    file.write(columns)
    written_so_far = octets.getvalue()
    file.abandon()
    file.close()
    assert octets.getvalue() == written_so_far
