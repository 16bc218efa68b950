"""Columns as files that other tools read: what is read back is what was written."""

import io
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from rdmawire.columns import DEFAULT_FIELDS, iter_columns, read_columns
from rdmawire.columns.arrow import table_file
from tests.captures import CAPTURES

RNR = CAPTURES / "linux" / "rxe61_rnr.pcap"


def written(form: str, path: Path, fields: tuple[str, ...] = DEFAULT_FIELDS) -> bytes:
    data = io.BytesIO()
    blocks = [block.at(slice(start, start + 50)) for block in iter_columns(path, fields)
              for start in range(0, block.rows, 50)]  # fmt: skip
    file = table_file(form, data, blocks[0].at(slice(0)))
    for block in blocks:
        file.write(block)
    file.close()
    return data.getvalue()


def test_parquet_and_arrow_hold_the_columns() -> None:
    wanted = read_columns(RNR).arrow().to_pydict()
    assert parquet.read_table(io.BytesIO(written("parquet", RNR))).to_pydict() == wanted
    with pa.ipc.open_stream(written("arrow", RNR)) as stream:
        assert stream.read_all().to_pydict() == wanted


def test_csv_is_text_that_reads_back() -> None:
    names = ("frame.number", "frame.time_relative", "ip.src", "infiniband.aeth.msn")
    data = written("csv", RNR, names)
    assert data.splitlines()[0].decode() == ",".join(f'"{name}"' for name in names)
    assert data.splitlines()[18] == b'18,"0.041604000","10.77.0.1",0'
    assert data.splitlines()[1] == b'1,"0.000000000","10.77.0.2",'
    table = csv.read_csv(io.BytesIO(data)).to_pydict()
    assert table["frame.number"] == list(range(1, 153))


def test_bytes_are_digits_in_csv() -> None:
    data = written("csv", RNR, ("frame.number", "infiniband.bth"))
    assert data.splitlines()[18] == b'18,"1100ffff0000003a00000100"'


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_a_file_of_no_rows_names_its_columns(form: str) -> None:
    data = io.BytesIO()
    nothing = read_columns(RNR, ["ip.src", "frame.number"]).at(slice(0))
    table_file(form, data, nothing).close()
    assert b"frame.number" in data.getvalue()


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_an_abandoned_file_gets_no_end(form: str) -> None:
    data = io.BytesIO()
    columns = read_columns(RNR, ["ip.src"])
    file = table_file(form, data, columns)
    file.write(columns)
    written_so_far = data.getvalue()
    file.abandon()
    file.close()
    assert data.getvalue() == written_so_far
