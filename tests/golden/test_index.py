"""The index of vectors: complete by the tables, and true by frames parsed without a dissector."""

import tomllib
from functools import cache

import pytest

from rdmawire.capture import Record, open_capture
from rdmawire.capture.record import LinkType
from rdmawire.decode import PROTOCOLS
from rdmawire.vectors.index import TABLES
from rdmawire.wire import roce
from rdmawire.wire.cm import CMAttribute, RejectReason
from rdmawire.wire.ib import CREDITS, RNR_TIMER_NS, Ack, Nak
from rdmawire.wire.opcode import OPERATIONS, SHAPES, Opcode
from rdmawire.wire.rdmap import RDMAPOpcode
from tests.captures import CAPTURES
from tools.make_captures.index import index

INDEX = tomllib.loads((CAPTURES / "index.toml").read_text())

ROWS = [(table, row) for table, rows in INDEX.items() for row in rows]


@cache
def records(file: str) -> list[Record]:
    with open_capture(CAPTURES / file) as reader:
        return list(reader)


def test_it_is_what_is_found_in_the_captures() -> None:
    assert (CAPTURES / "index.toml").read_text() == index(CAPTURES)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_of_the_tables_is_seen_in_a_capture(table: str) -> None:
    assert list(INDEX[table]) == list(TABLES[table].rows)
    assert [row for row, places in INDEX[table].items() if not places] == []


def test_there_is_a_row_for_every_operation_of_every_service() -> None:
    assert set(INDEX["opcodes"]) == {opcode.name for opcode in Opcode}
    every = {service << 5 | operation for service, all_ in OPERATIONS.items() for operation in all_}
    assert every | {Opcode.CNP} == {Opcode[name] for name in INDEX["opcodes"]} == set(SHAPES)


def test_there_is_a_row_for_every_syndrome_message_and_link_type() -> None:
    assert len(INDEX["syndromes"]) == len(CREDITS) + 1 + len(RNR_TIMER_NS) + len(Nak) + 1
    assert set(INDEX["connections"]) == {attribute.name for attribute in CMAttribute}
    assert {f"REJ.reason {reason.name}" for reason in RejectReason} <= set(
        INDEX["connection_codes"]
    )
    assert set(INDEX["rdmap"]) == {opcode.name for opcode in RDMAPOpcode}
    links = {f"link type {link.name}" for link in LinkType}
    assert links == {row for row in INDEX["carriages"] if row.startswith("link type")}
    steps = {selector for selector, _ in PROTOCOLS}
    shown = {row.rpartition(" ")[0] for row in INDEX["carriages"]}
    assert steps - shown == {"IBA transport", "queue pair", "trailer"}


def plain(places: list[tuple[str, int]]) -> list[bytes]:
    """The bytes at these places that are plain Ethernet."""
    found = (records(file)[number - 1] for file, number in places)
    return [record.data for record in found if record.link_type == LinkType.ETHERNET]


@pytest.mark.parametrize("name", INDEX["opcodes"])
def test_the_byte_of_the_opcode_is_there(name: str) -> None:
    frames = plain(INDEX["opcodes"][name])
    at = [roce.bth_offset(data, 0, len(data)) for data in frames]
    found = {data[bth] for data, bth in zip(frames, at, strict=True) if bth >= 0}
    assert found == {Opcode[name]}


@pytest.mark.parametrize("name", list(INDEX["syndromes"])[:-1])
def test_the_byte_of_the_syndrome_is_there(name: str) -> None:
    kind, value = name.partition(":")[0].split()
    syndrome = Ack[kind] << 5 | int(value)
    for data in plain(INDEX["syndromes"][name]):
        bth = roce.bth_offset(data, 0, len(data))
        assert data[bth + 12] == syndrome


@pytest.mark.parametrize("name", INDEX["connections"])
def test_the_bytes_of_the_message_are_there(name: str) -> None:
    for data in plain(INDEX["connections"][name]):
        bth = roce.bth_offset(data, 0, len(data))
        mad = data[bth + 12 + 8 :]
        assert (mad[1], int.from_bytes(mad[16:18], "big")) == (0x07, CMAttribute[name])


SPOKEN = ("RC", "UC", "UD", "XRC", "CNP")


def test_every_opcode_of_the_software_rnic_is_in_a_golden_capture() -> None:
    spoken = [name for name in INDEX["opcodes"] if name.split("_")[0] in SPOKEN]
    first = [INDEX["opcodes"][name][0] for name in spoken]
    first += [places[0] for places in INDEX["syndromes"].values()]
    assert len(first) > 100
    assert {file.partition("/")[0] for file, _ in first} == {"golden"}
