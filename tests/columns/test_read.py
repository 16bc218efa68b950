"""Columns hold what dissecting frame by frame gives, whichever way they are read."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from rdmawire.capture import Interface, Record, create_capture, open_capture
from rdmawire.columns import Columns, Form, RowUnit, iter_columns, read_columns
from rdmawire.columns.column import column_type
from rdmawire.columns.query import Query
from rdmawire.columns.read import MixedReader, frame_rows, iter_dissected
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import fields
from rdmawire.dissect.select import FieldError, Selection, sources
from rdmawire.errors import CaptureError
from tests.captures import CAPTURES, EVERY, each_capture
from tests.dissect.mutation import COUNTS, mutated

ETHERNET = [path for path in EVERY if path.read_bytes()[:24][20:] == b"\1\0\0\0"]
PLAIN = [info.name for info in fields() if Query([info.name]).is_fast]


def until_damage(blocks: Iterator[Columns]) -> tuple[dict[str, list[object]], str]:
    """All values by name, ``None`` where absent, and the error of damage."""
    found: dict[str, list[object]] = {name: [] for name in PLAIN}
    try:
        for block in blocks:
            for name, column in block.items():
                pairs = zip(column.values.tolist(), column.valid.tolist(), strict=True)
                found[name] += [value if valid else None for value, valid in pairs]
    except CaptureError as error:
        return found, str(error)
    return found, ""


def check(path: Path) -> None:
    at_once, damage = until_damage(iter_columns(path, PLAIN))
    one_by_one, expected = until_damage(iter_dissected(path, Query(PLAIN), (4791,), frame_rows))
    assert damage == expected
    for name in PLAIN:
        assert at_once[name] == one_by_one[name], name


def test_nearly_all_fields_are_read_at_once() -> None:
    assert len(PLAIN) > 1000
    assert {"infiniband.reth.va", "ip.src", "rdmawire.icrc.status", "frame.time_delta"} < set(PLAIN)


@each_capture()
def test_columns_are_the_dissection_in_arrays(path: Path) -> None:
    check(path)


@pytest.mark.parametrize("count", COUNTS)
def test_columns_of_damaged_captures(count: int, tmp_path: Path) -> None:
    path = tmp_path / "mutated.pcap"
    for _ in mutated(ETHERNET, 2500, path, count):
        check(path)


def test_values_are_those_of_a_selection() -> None:
    """Against the text that scripts get: the two ways are not only alike but right."""
    names = ["frame.number", "ip.src", "infiniband.bth.psn", "infiniband.aeth.syndrome.timer"]
    path = CAPTURES / "linux" / "rxe61_rnr.pcap"
    table = read_columns(path, names).arrow().to_pydict()
    with open_capture(path) as reader:
        rows = [Selection(names).values(frame) for frame in Dissector().capture(reader)]
    for place, name in enumerate(names):
        texts = [row[place][0] if row[place] else None for row in rows]
        assert [None if v is None else str(v) for v in table[name]] == texts
    assert table["infiniband.aeth.syndrome.timer"].count(14) == 65


def test_plain_frames_are_not_dissected() -> None:
    path = CAPTURES / "generated" / "roce_v2_ipv4.pcap"
    dissect = MixedReader._dissect
    with patch.object(MixedReader, "_dissect", autospec=True, side_effect=dissect) as dissections:
        rows = read_columns(path, ["infiniband.bth.psn"]).rows
    assert dissections.call_count < rows / 4


def test_forms_and_their_arrays() -> None:
    path = CAPTURES / "generated" / "roce_v2_ipv6.pcap"
    columns = read_columns(path, ["ipv6.src", "eth.src", "infiniband.bth.a", "ip.hdr_len"])
    forms = {name: column.type.form for name, column in columns.items()}
    assert forms == {
        "ipv6.src": Form.IPV6,
        "eth.src": Form.MAC,
        "infiniband.bth.a": Form.FLAG,
        "ip.hdr_len": Form.NUMBER,
    }
    assert columns["ipv6.src"].values.dtype == np.dtype("V16")
    assert not columns["ip.hdr_len"].valid.any()


def test_every_field_makes_a_column_of_one_form() -> None:
    for field in Query(info.name for info in fields()).fields:
        places = sources(field.name)[field.first :]
        forms = {column_type(source.show, source.width).form for _, source in places}
        assert forms <= {field.type.form}, field.name


def test_a_header_of_one_row_is_that_row() -> None:
    columns = read_columns(CAPTURES / "linux" / "rxe61_vt_ud_imm.pcap", ["infiniband.immdt"])
    column = columns["infiniband.immdt"]
    assert set(column.values[column.valid].tolist()) == {0xABCDEF01}


def test_numbers_count_in_ones() -> None:
    columns = read_columns(CAPTURES / "linux" / "rxe61_rnr.pcap", ["ip.hdr_len"])
    assert set(columns["ip.hdr_len"].values.tolist()) == {20}


def test_rows_of_fpdus() -> None:
    names = ["frame.number", "ip.src", "iwarp_rdma.opcode", "iwarp_mpa.ulpdulength"]
    path = CAPTURES / "linux" / "siw612crc_rping.pcap"
    columns = read_columns(path, names, row=RowUnit.FPDU)
    with open_capture(path) as reader:
        wanted = [
            values
            for frame in Dissector().capture(reader)
            for values in zip(*Selection(names[2:]).values(frame), strict=True)
        ]
    assert columns["iwarp_rdma.opcode"].valid.all()
    pairs = zip(*(columns[name].values.tolist() for name in names[2:]), strict=True)
    assert [(f"0x{opcode:02x}", str(length)) for opcode, length in pairs] == wanted


def test_of_a_damaged_file_blocks_come_before_the_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes((CAPTURES / "linux" / "rxe61_rnr.pcap").read_bytes()[:-3])
    found, damage = until_damage(iter_columns(path, PLAIN))
    assert len(found["frame.number"]) == 151
    assert "claims" in damage
    with pytest.raises(CaptureError, match="claims"):
        read_columns(path)


def test_a_capture_of_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes((CAPTURES / "linux" / "rxe61_rnr.pcap").read_bytes()[:24])
    assert read_columns(path).rows == 0
    assert read_columns(path).arrow().num_rows == 0


def test_an_unknown_field_is_an_error_at_once() -> None:
    with pytest.raises(FieldError, match=r"nearest is infiniband.bth.psn"):
        iter_columns("nowhere", ["infiniband.bth.psm"])


def test_one_field_may_be_named_as_it_is() -> None:
    assert list(read_columns(CAPTURES / "linux" / "rxe61_rnr.pcap", "ip.src")) == ["ip.src"]


def test_what_is_no_port_is_refused() -> None:
    with pytest.raises(ValueError, match="70000 is not a UDP port"):
        iter_columns("nowhere", ports=[70000])


def test_what_is_no_kind_of_row_is_refused() -> None:
    with pytest.raises(ValueError, match="'packet' is not a valid Row"):
        iter_columns("nowhere", row="packet")  # type: ignore[arg-type]


def test_a_name_may_be_bytes() -> None:
    name: Any = os.fsencode(CAPTURES / "linux" / "rxe61_rnr.pcap")
    assert read_columns(name, ["ip.src"]).rows == 152


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(CaptureError, match=r"/proc/self/mem: the device failed"):
        read_columns("/proc/self/mem", ["ip.src"])


def test_other_ports_are_asked_for() -> None:
    path = CAPTURES / "linux" / "rxe61_rnr.pcap"
    assert not read_columns(path, ["infiniband.bth.psn"], ports=[1])[
        "infiniband.bth.psn"
    ].valid.any()
    two = read_columns(path, ["infiniband.bth.psn"], ports=[1, 4791])["infiniband.bth.psn"]
    assert two.valid.sum() == 137


def test_a_time_that_no_array_holds_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "far.pcapng"
    with create_capture(path, interfaces=[Interface(1, resolution=1)]) as writer:
        writer.write(Record(b"x", (1 << 62) * 1_000_000_000, 1, 1))
    columns = read_columns(path, ["frame.time_epoch", "frame.len"])
    assert columns["frame.time_epoch"].valid.tolist() == [False]
    assert columns["frame.len"].values.tolist() == [1]
