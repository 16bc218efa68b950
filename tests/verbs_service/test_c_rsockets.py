"""Programs that use rsockets: with the same results as ordinary sockets, and by the protocol."""

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from rdmawire.capture import open_capture
from rdmawire.verbs_service import network_of
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.network import DirectNetwork
from rdmawire.wire.cm import REP, REQConsumerData
from rdmawire.wire.ib import BTH, RETH, ImmDt
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import bth_offset
from tests.verbs_service.c_programs import program, run
from tests.verbs_service.running import running
from tests.verbs_service.test_c_rdmacm import messages_in

SANITIZERS = ("address", "undefined")
GRANT, CONTROL = 4 << 29, 7 << 29
DISCONNECT = 0
CREDITS, BUFFER = 384, 1 << 17


def test_rsockets_and_sockets_have_the_same_results(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        done = run(program("rsockets", *SANITIZERS), service.path)
        assert done.returncode == 0, done.stderr


def test_nothing_is_lost_on_a_network_that_loses_packets(tmp_path: Path) -> None:
    network, _ = network_of("loss=0.01,seed=1", 2)
    with running(tmp_path, network) as service:
        for scenario in ("sizes", "last_words"):
            done = run(program("rsockets", *SANITIZERS), service.path, scenario)
            assert done.returncode == 0, done.stderr


class ConnData(NamedTuple):
    """``struct rs_conn_data`` of rdma-core's ``docs/rsocket``, with all its reserved bytes."""

    version: int
    flags: int
    credits: int
    reserved: bytes
    target_address: int
    target_key: int
    target_count: int
    buffer_address: int
    buffer_key: int
    buffer_size: int


_CONN_DATA = Struct(">BBH4sQIIQII")


def conn_data(file: Path, name: str, header: type[REQConsumerData | REP]) -> ConnData:
    """The private data of the only message of that name."""
    (found,) = (
        piece.private_data
        for attribute, pieces in messages_in(file)
        if attribute.name == name
        for piece in pieces
        if isinstance(piece, header)
    )
    return ConnData._make(_CONN_DATA.unpack(found[: _CONN_DATA.size]))


class Write(NamedTuple):
    """A WRITE with immediate data; ``sender`` is the last byte of the IPv4 address."""

    sender: int
    address: int
    key: int
    size: int
    message: int


def writes_in(file: Path) -> list[Write]:
    """The WRITEs with immediate data of a capture."""
    with open_capture(file) as reader:
        frames = [record.data for record in reader]
    found = []
    for frame in frames:
        at = bth_offset(frame, 0, len(frame))
        if BTH.parse(frame, at).opcode == Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE:
            reth = RETH.parse(frame, at + BTH.SIZE)
            message = ImmDt.parse(frame, at + BTH.SIZE + RETH.SIZE).immdt
            found.append(Write(frame[29], reth.va, reth.rkey, reth.dmalen, message))
    return found


def test_packets_are_those_of_rsockets(tmp_path: Path) -> None:
    """Both ends offer the second half of their buffers; then come ten bytes and the end."""
    file = tmp_path / "live.pcap"
    with running(tmp_path, DirectNetwork(Capture(file))) as service:
        done = run(program("rsockets", *SANITIZERS), service.path, "numbers")
        assert done.returncode == 0, done.stderr
    asked, answered = conn_data(file, "REQ", REQConsumerData), conn_data(file, "REP", REP)
    for data in (asked, answered):
        assert (data.version, data.flags, data.credits, data.reserved) == (1, 2, CREDITS, bytes(4))
        assert (data.target_count, data.buffer_size) == (2, BUFFER // 2)
    second_target = 16
    client = [write for write in writes_in(file) if write.sender == 2]
    server = [write for write in writes_in(file) if write.sender == 1]
    to_client = (asked.target_address + second_target, asked.target_key)
    to_server = (answered.target_address + second_target, answered.target_key)
    assert server == [Write(1, *to_client, 16, GRANT | CREDITS)]
    assert client == [
        Write(2, *to_server, 16, GRANT | CREDITS),
        Write(2, answered.buffer_address, answered.buffer_key, 10, 10),
        Write(2, 0, 0, 0, CONTROL | DISCONNECT),
    ]
