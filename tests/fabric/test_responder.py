"""A responder made from a request: it answers as the one answered that the request was for."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import VerbsError, WireError
from rdmawire.fabric.pair import End, Pair, Responder
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import RXE
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, CNP, RETH, Ack, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet

LINUX = Path(__file__).parents[2] / "captures" / "linux"
"""Each a bad request behind a good one."""
WAYS: dict[str, Callable[[End], object]] = {
    "write": lambda client: client.write(b"hello", to=client.peer.region),
    "read": lambda client: client.read(3000, of=client.peer.region),
    "send": lambda client: client.send(b"hello"),
    "fetch_add": lambda client: client.fetch_add(7, of=client.peer.region),
    "long write": lambda client: client.write(bytes(3000), to=client.peer.region),
}


def requests(pair: Pair) -> list[bytes]:
    return pair.client.nic.transmit(0)


def beside(pair: Pair, request: bytes) -> Responder:
    """A responder in the server's place."""
    region = pair.server.region
    responder = Responder(request, peer_qpn=pair.client.qp.number)
    responder.memory(region.address, region.region.length, region.rkey).write(region.read())
    return responder


@pytest.mark.parametrize("way", WAYS)
def test_it_answers_octet_for_octet_as_the_server_does(way: str) -> None:
    pair = Pair()
    pair.server.region.write(bytes(range(256)) * 16)
    pair.server.receive(100)
    WAYS[way](pair.client)
    frames = requests(pair)
    responder = beside(pair, frames[0])
    sink = responder.receive(100)
    for frame in frames:
        pair.server.nic.receive(frame, 0)
        assert responder.answer(frame) == pair.server.nic.transmit(0)
    assert [done.status.name for done in responder.poll()] == (["SUCCESS"] if way == "send" else [])
    assert sink.read(5) == (b"hello" if way == "send" else bytes(5))


def packets(name: str) -> list[tuple[bytes, Packet]]:
    """The frames of RDMA, and their packets."""
    found = []
    with open_capture(LINUX / name) as reader:
        for record in reader:
            with suppress(WireError):
                found.append((record.data, roce.parse(record.data).packet))
    return found


@pytest.mark.parametrize(
    ("name", "length", "key"),
    [
        ("rxe61_err_badrkey_write.pcap", 100, 0),
        ("rxe61_err_badrkey_read.pcap", 100, 1),
        ("rxe61_err_oob_write.pcap", 8, 0),
    ],
)
def test_a_capture_fed_whole_is_answered_as_linux_answered_it(
    name: str, length: int, key: int
) -> None:
    frames = packets(name)
    (first, request), (_, answer) = frames[:2]
    reth = next(piece for piece in request.extended if isinstance(piece, RETH))
    responder = Responder(first, peer_qpn=answer.bth.destqp, profile=RXE)
    responder.memory(reth.va, length, reth.rkey + key)
    said = [sent for frame, _ in frames for sent in responder.answer(frame)]
    answers = [packet for _, packet in frames if packet.bth.opcode == Opcode.RC_ACKNOWLEDGE]
    assert [roce.parse(sent).packet for sent in said] == answers
    assert responder.nic.drops == {Drop.NOT_MINE: len(answers)}


def test_memory_ends_where_it_was_said_to_end() -> None:
    pair = Pair()
    pair.client.write(bytes(100), to=pair.server.region, offset=8)
    (request,) = requests(pair)
    codes = []
    for length in 100, 99:
        responder = Responder(request)
        responder.memory(pair.server.region.address + 8, length, pair.server.region.rkey)
        (answer,) = responder.answer(request)
        (aeth,) = roce.parse(answer).packet.extended
        assert isinstance(aeth, AETH)
        codes.append((aeth.ack, aeth.value))
    assert codes[0][0] == Ack.ACK
    assert codes[1] == (Ack.NAK, Nak.REMOTE_ACCESS_ERROR)


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_services_without_answers_take_what_comes(kind: QPType) -> None:
    pair = Pair(kind=kind)
    pair.client.send(b"hello")
    (request,) = requests(pair)
    responder = Responder(request)
    sink = responder.receive(5)
    assert responder.answer(request) == []
    assert sink.read(5, offset=responder.qp.service.grh) == b"hello"
    assert not responder.nic.drops


def test_it_is_made_of_requests_of_roce_and_of_no_other_service() -> None:
    with pytest.raises(WireError):
        Responder(bytes(60))
    pair = Pair()
    packet = Packet.make(Opcode.CNP, CNP(), destqp=pair.server.qp.number, becn=1)
    cnp = roce.Frame(pair.client.qp.seal.headers, packet).seal().build()
    with pytest.raises(VerbsError, match="no responder for CNP: there are RC, UC, UD"):
        Responder(cnp)
