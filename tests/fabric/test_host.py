"""Hosts: their places, their memory, their events, and connections by hand."""

from collections.abc import Callable
from errno import EINVAL
from random import Random
from typing import Any

import pytest

from rdmawire.errors import FabricError, VerbsError
from rdmawire.fabric.host import ALL_ACCESS, Buffer, Host, NotifyingPort, Place, Registered
from rdmawire.fabric.link import Link
from rdmawire.fabric.network import Network
from rdmawire.fabric.pair import ATTRIBUTES, CAP, End, Pair, connect
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.cm.event import CMEvent
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.gpu.device import H200
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.gpu.peermem import Peermem
from rdmawire.memory.page import Path
from rdmawire.units import us
from rdmawire.verbs.async_event import AccessViolation, CompletionEvent, Event
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.inet import Ethernet, IPv4
from rdmawire.wire.roce import Medium

MAPPED = bytes(10) + b"\xff\xff"


@pytest.mark.parametrize(
    ("address", "gid"),
    [
        ("192.168.1.10", MAPPED + bytes((192, 168, 1, 10))),
        ("::ffff:192.168.1.10", MAPPED + bytes((192, 168, 1, 10))),
        ("fd00::1:a", bytes((0xFD, *bytes(12), 1, 0, 10))),
    ],
)
def test_places_are_read_from_text(address: str, gid: bytes) -> None:
    assert Place.of("0c:c4:7a:00:00:fe", address) == (b"\x0c\xc4\x7a\x00\x00\xfe", gid)


@pytest.mark.parametrize(
    ("mac", "address", "reason"),
    [
        ("0c:c4:7a:00:00", "10.0.0.1", "is no Ethernet address"),
        ("0c:c4:7a:00:00:zz", "10.0.0.1", "0c:c4:7a:00:00:zz"),
        ("0c:c4:7a:00:00:01", "10.0.0.256", r"10\.0\.0\.256"),
    ],
)
def test_what_is_no_place_is_refused(mac: str, address: str, reason: str) -> None:
    with pytest.raises(VerbsError, match=reason):
        Place.of(mac, address)


@pytest.mark.parametrize("number", [1, 17, 254])
def test_numbers_make_places(number: int) -> None:
    mac = bytes((2, 0, 0, 0, 0, number))
    assert Place.numbered(number) == (mac, MAPPED + bytes((10, 0, 0, number)))
    assert Place.numbered(number, ipv6=True) == (mac, bytes((0xFD, *bytes(14), number)))


@pytest.mark.parametrize("number", [-1, 0, 255])
def test_numbers_that_make_no_place_are_refused(number: int) -> None:
    with pytest.raises(VerbsError, match=f"host number: {number} is not an integer from 1 to 254"):
        Host(number)


def test_a_truth_value_is_no_number_of_a_host() -> None:
    with pytest.raises(VerbsError, match="host number: True is not of type int"):
        Host(True)


def test_a_pair_has_the_places_it_is_given() -> None:
    here, there = Place.of("0c:c4:7a:00:00:01", "192.168.1.10"), Place.numbered(9)
    pair = Pair(places=(here, there))
    pair.client.write(b"x", to=pair.server.region)
    headers = roce.parse(pair.client.nic.transmit(0)[0]).headers
    assert [(h.src, h.dst) for h in headers if isinstance(h, Ethernet)] == [(here.mac, there.mac)]
    assert [(h.src, h.dst) for h in headers if isinstance(h, IPv4)] == [
        (here.gid[12:], there.gid[12:])
    ]


def test_each_end_of_a_pair_expects_what_the_other_sends_first() -> None:
    pair = Pair(attributes=ATTRIBUTES._replace(sq_psn=0xFFFFFF, rq_psn=0x500))
    pair.client.write(b"there", to=pair.server.region)
    pair.server.write(b"back", to=pair.client.region)
    pair.drive()
    assert (pair.server.region.read(5), pair.client.region.read(4)) == (b"there", b"back")
    assert [end.qp.attributes.sq_psn for end in (pair.client, pair.server)] == [0xFFFFFF, 0x500]


@pytest.mark.parametrize("kind", [QPType.XRC_INI, QPType.XRC_TGT, QPType.RAW_PACKET])
def test_there_is_no_pair_of_what_has_no_two_like_ends(kind: QPType) -> None:
    with pytest.raises(VerbsError, match=f"no pair of {kind.name}: there are pairs of RC, UC, UD"):
        Pair(kind=kind)


@pytest.mark.parametrize("kind", [QPType.UC, QPType.RC])
def test_queue_pairs_are_connected_by_hand(kind: QPType) -> None:
    simulator, link, one, two = Simulator(), Link(), Host(1), Host(2)
    ends = []
    for host in (one, two):
        simulator.attach(host.nic, host.mac, link)
        cq = host.nic.create_cq(16)
        ends.append(host.nic.create_qp(kind, QPInit(host.pd, cq, cq, CAP)))
    connect(one, ends[0], two, ends[1], ATTRIBUTES._replace(sq_psn=7, rq_psn=70))
    assert [qp.state for qp in ends] == [QPState.RTS] * 2
    for host, qp, peer, peers in ((one, ends[0], two, ends[1]), (two, ends[1], one, ends[0])):
        sink = peer.buffer(5)
        peer.nic.post_recv(peers, [RecvWR((sink.sge(),))])
        source = host.filled(b"hello")
        host.nic.post_send(qp, [SendWR(SendOpcode.SEND, (source.sge(),))])
        simulator.run()
        assert sink.read() == b"hello"


def test_what_is_up_cannot_be_brought_up() -> None:
    pair = Pair()
    with pytest.raises(VerbsError, match="no transition from RTS to INIT of RC"):
        connect(pair.client, pair.client.qp, pair.server, pair.server.qp)


def test_events_are_taken_once() -> None:
    pair = Pair()
    pair.client.write(b"x", to=pair.server.region, offset=1 << 20)
    pair.drive()
    assert pair.server.events() == [AccessViolation(pair.server.qp.qp_num)]
    assert pair.server.events() == []


def test_registered_memory_goes_out_whole() -> None:
    pair = Pair()
    source, sink = pair.client.filled(b"twelve bytes"), pair.server.receive(20)
    assert pair.client.send(source).buffer is source
    assert pair.client.write(source, to=pair.server.region, offset=3).buffer is source
    pair.drive()
    assert sink.buffer.read(12) == pair.server.region.read(12, 3) == b"twelve bytes"
    assert pair.server.poll()[0].byte_len == 12


def test_from_one_gpu_to_another() -> None:
    pair = Pair()
    tensors = []
    for end in (pair.client, pair.server):
        driver = GpuDriver(end.space)
        end.nic.memory.clients.append(Peermem(driver))
        gpu = driver.add(H200)
        at = gpu.allocate(1 << 16).address
        tensors.append(Registered(gpu, end.nic.memory.reg_mr(end.pd, at, 1 << 16, ALL_ACCESS)))
    tensors[0].write(b"weights", 60_000)
    pair.client.write(tensors[0], to=tensors[1])
    pair.drive()
    assert tensors[1].read(7, 60_000) == b"weights"
    for end in (pair.client, pair.server):
        counter = end.nic.memory.counter
        assert counter[Path.GPU_DIRECT].bytes == 1 << 16
        assert counter[Path.HOST].bytes == counter[Path.BOUNCE].bytes == 0


def test_work_without_memory_is_about_the_region() -> None:
    pair = Pair()
    posted = pair.client.post(SendWR(SendOpcode.SEND))
    assert posted.buffer is pair.client.region
    pair.server.receive()
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS]


def test_memory_says_where_it_is() -> None:
    buffer: Buffer = Host().buffer(100)
    assert repr(buffer) == f"<Buffer: 100 bytes at {buffer.address:#x}, rkey {buffer.rkey:#x}>"


class Asker:
    """Posts the next piece of work when the one before is done, a number of times."""

    def __init__(self, host: Host, work: SendWR, times: int) -> None:
        self.host, self.work, self.times = host, work, times
        self.port = NotifyingPort(host.nic)
        self.port.on_event = self.hear
        self.cq = host.nic.create_cq(64)
        self.qp: QueuePair = host.nic.create_qp(QPType.RC, QPInit(host.pd, self.cq, self.cq, CAP))
        self.simulator = Simulator()
        self.done: list[int] = []

    def hear(self, event: Event | CMEvent) -> None:
        assert event == CompletionEvent(self.cq.number)
        for _ in self.cq.poll(64):
            self.done.append(self.simulator.now)
            if len(self.done) < self.times:
                self.ask()

    def ask(self) -> None:
        self.cq.req_notify()
        self.host.nic.post_send(self.qp, (self.work,))


def test_one_answer_leads_to_the_next_question() -> None:
    server = Host(2)
    asker = Asker(Host(1), SendWR(SendOpcode.RDMA_WRITE), times=3)
    cq = server.nic.create_cq(64)
    peer = server.nic.create_qp(asker.qp.type, QPInit(server.pd, cq, cq, CAP))
    connect(asker.host, asker.qp, server, peer, ATTRIBUTES)
    link = Link(us(1))
    asker.simulator.attach(asker.port, asker.host.mac, link)
    asker.simulator.attach(server.nic, server.mac, link)
    asker.ask()
    asker.simulator.run()
    assert asker.done == [us(2), us(4), us(6)]


def test_work_without_packets_leads_to_more_within_the_same_turn() -> None:
    asker = Asker(Host(1), SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=0), times=3)
    asker.host.bring_up(asker.qp, ATTRIBUTES._replace(ah=asker.host.path_to(Host(2))))
    asker.ask()
    assert asker.port.sends_more
    assert asker.port.transmit(5) == []
    assert len(asker.done) == 3
    assert not asker.port.sends_more


def test_nobody_need_listen() -> None:
    asker = Asker(Host(1), SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=0), times=1)
    asker.host.bring_up(asker.qp, ATTRIBUTES._replace(ah=asker.host.path_to(Host(2))))
    port = NotifyingPort(asker.host.nic)
    asker.ask()
    assert (port.transmit(0), port.next_timer(), port.deliver_events()) == ([], None, False)


def test_a_frame_that_was_taken_in_is_shown_behind_what_it_led_to() -> None:
    server = Host(2)
    asker = Asker(Host(1), SendWR(SendOpcode.RDMA_WRITE), times=2)
    cq = server.nic.create_cq(64)
    peer = server.nic.create_qp(asker.qp.type, QPInit(server.pd, cq, cq, CAP))
    connect(asker.host, asker.qp, server, peer, ATTRIBUTES)
    link, seen = Link(us(1)), list[tuple[int, int]]()
    asker.simulator.attach(asker.port, asker.host.mac, link)
    asker.simulator.attach(server.nic, server.mac, link)
    asker.port.on_taken.append(lambda _, now: seen.append((now, len(asker.done))))
    asker.ask()
    asker.simulator.run()
    assert seen == [(us(2), 1), (us(4), 2)]


def _given(value: Any) -> Any:
    """Something, where nothing would be no mistake."""
    return 0 if value is None else value


CALLS: dict[str, Callable[[End, Any], object]] = {
    "read length": lambda end, x: end.region.read([x]),  # type: ignore[arg-type]
    "read offset": lambda end, x: end.region.read(1, x),
    "write": lambda end, x: end.region.write(x),
    "write offset": lambda end, x: end.region.write(b"x", x),
    "send": lambda end, x: end.send(x),
    "write verb": lambda end, x: end.write(x, to=end.peer.region),
    "write to": lambda end, x: end.write(b"x", to=x),
    "write at": lambda end, x: end.write(b"x", to=end.peer.region, offset=x),
    "read": lambda end, x: end.read(x, of=end.peer.region),
    "read of": lambda end, x: end.read(1, of=x),
    "atomic_write": lambda end, x: end.atomic_write(x, to=end.peer.region),
    "receive": lambda end, x: end.receive(x),
    "post": lambda end, x: end.post(x),
    "host": lambda _, x: Host(x),
    "filled": lambda end, x: end.filled(x),
    "path_to": lambda end, x: end.path_to(x),
    "bring_up": lambda end, x: end.bring_up(end.qp, x),
    "bring_up qp": lambda end, x: end.bring_up(x, ATTRIBUTES),
    "place": lambda _, x: Place.of(x, "10.0.0.1"),
    "place address": lambda _, x: Place.of("02:00:00:00:00:01", x),
    "place number": lambda _, x: Place.numbered(x),
    "kind": lambda _, x: Pair(kind=x),
    "attributes": lambda _, x: Pair(attributes=x),
    "places": lambda _, x: Pair(places=x),
    "profile": lambda _, x: Pair(profile=x),
    "peer's profile": lambda _, x: Pair(peer_profile=_given(x)),
    "link": lambda _, x: Pair(_given(x)),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_wrong_argument_is_refused(call: str) -> None:
    end = Pair().client
    for value in (None, "text", 1.5, float("nan"), float("inf"), [1, 2, 3], {1: 2}, object(), int):
        with pytest.raises(VerbsError) as caught:
            CALLS[call](end, value)
        assert caught.value.errno == EINVAL
        assert len(str(caught.value)) < 400
    assert not end.nic.transmit(0)


@pytest.mark.parametrize("place", [-1, "x", ("a", "b"), object()])
def test_a_place_is_a_place(place: Any) -> None:
    with pytest.raises(VerbsError, match=r"place: .* is not of type Place"):
        Host(place=place)


def test_a_simulator_refuses_adapters_without_ethernet_headers() -> None:
    host, simulator = Host(1, medium=Medium.IP), Simulator()
    managed = ManagedPort(host.nic, dict[bytes, bytes]().get, Random(1))
    ports = (host.nic, managed, NotifyingPort(host.nic), NotifyingPort(host.nic, managed))
    message = r"the adapter sends IP packets \(Medium.IP\): the link carries Ethernet frames"
    for port in ports:
        for link in (Link(), Link(rate=1_000_000_000)):
            with pytest.raises(FabricError, match=message):
                simulator.attach(port, host.mac, link)
    network = Network()
    network.add_host("a", host)
    network.add_host("b", Host(2))
    with pytest.raises(FabricError, match=message):
        network.join("a", "b", Link())
