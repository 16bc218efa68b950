"""An adapter behind a bus does what it does without one, later."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric import (
    CAP,
    Cable,
    DmaPort,
    Host,
    Network,
    NotifyingPort,
    Registered,
    Rule,
    connect,
    place_of,
    star,
)
from rdmawire.ib import QPInit, QueuePair
from rdmawire.memory.gpu import A100, GpuDriver, Peermem
from rdmawire.memory.page import Path
from rdmawire.topology import Bus, Machine, memory_route, peer_route
from rdmawire.traffic.scenario.topology_file import open_host
from rdmawire.units import gbps, us
from rdmawire.verbs import QPType, RecvWR, SendFlags, SendOpcode, SendWR, WCStatus
from tests.effort import examples

HOST: Machine = open_host("two-sockets").machine
SIZE = 1 << 16


class Attached(NamedTuple):
    """A host of a network, behind a bus or not."""

    mac: bytes
    nic: DmaPort | NotifyingPort


class Peer:
    """A host with memory of its own and of a GPU, and a queue pair."""

    def __init__(self, number: int, *, with_bus: bool) -> None:
        self.host = Host(place=place_of(number))
        driver = GpuDriver(self.host.space)
        self.host.nic.memory.clients.append(Peermem(driver))
        gpu = driver.add(A100)
        address = gpu.allocate(SIZE).address
        self.gpu = Registered(gpu, self.host.pd.reg_mr(address, SIZE, 0xF))
        self.memory = self.host.buffer(SIZE)
        self.bus = Bus(HOST)
        adapter, device = HOST.device("mlx5_0"), HOST.device("GPU0")
        routes = {
            Path.HOST: self.bus.route(memory_route(HOST, adapter, 0)),
            Path.GPU_DIRECT: self.bus.route(peer_route(HOST, adapter, device)),
        }
        port = NotifyingPort(self.host.nic)
        self.port: DmaPort | NotifyingPort = port
        if with_bus:
            self.port = DmaPort(port, self.host.nic, routes)
        cq = self.host.nic.create_cq(1 << 10)
        self.qp: QueuePair = self.host.nic.create_qp(QPType.RC, QPInit(self.host.pd, cq, cq, CAP))

    @property
    def attached(self) -> Attached:
        return Attached(self.host.mac, self.port)

    def buffer(self, on_gpu: bool) -> Registered:
        return self.gpu if on_gpu else self.memory


class Message(NamedTuple):
    """An operation of one of two hosts; both buffers are in GPU memory or in the host's."""

    host: int
    verb: str
    local_gpu: bool
    remote_gpu: bool
    offset: int
    size: int


_VERBS = {
    "write": SendOpcode.RDMA_WRITE,
    "read": SendOpcode.RDMA_READ,
    "send": SendOpcode.SEND,
}


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    """Draw operations of both hosts."""
    one = st.builds(
        Message,
        st.integers(0, 1),
        st.sampled_from(sorted(_VERBS)),
        st.booleans(),
        st.booleans(),
        st.integers(0, SIZE // 2),
        st.integers(0, SIZE // 2),
    )
    return draw(st.lists(one, min_size=1, max_size=8))


def play(drawn: list[Message], *, with_bus: bool, loss: float, seed: int) -> list[Peer]:
    """Do operations one after the other on each host; return the hosts at the end."""
    peers = [Peer(number, with_bus=with_bus) for number in (1, 2)]
    network = Network(seed=seed)
    star(network, {"a": peers[0].attached, "b": peers[1].attached}, Cable(us(1), gbps(100)))
    if loss:
        for link in network.links:
            network.set_faults(link, Rule("drop", chance=loss))
    connect(peers[0].host, peers[0].qp, peers[1].host, peers[1].qp)
    for number, peer in enumerate(peers):
        for buffer in (peer.gpu, peer.memory):
            buffer.write(bytes((number * 7 + at * 13) % 251 for at in range(SIZE)))
    for message in drawn:
        local, remote = peers[message.host], peers[1 - message.host]
        post(message, local, remote)
        network.wake("ab"[message.host])
        network.simulator.run()
        done = local.qp.send_cq.poll(10)
        assert [one.status for one in done if one.wr_id == 1] == [WCStatus.SUCCESS]
        remote.qp.send_cq.poll(10)
    return peers


def post(message: Message, local: Peer, remote: Peer) -> None:
    own = local.buffer(message.local_gpu).sge(message.size, message.offset)
    target = remote.buffer(message.remote_gpu)
    if message.verb == "send":
        remote.qp.post_recv((RecvWR((target.sge(),), wr_id=2),))
    address = target.address + message.offset
    kind = _VERBS[message.verb]
    one_sided = {"remote_address": address, "rkey": target.rkey} if message.verb != "send" else {}
    work = SendWR(kind, (own,), wr_id=1, flags=SendFlags.SIGNALED, **one_sided)  # type: ignore[arg-type]
    local.qp.post_send((work,))


@settings(max_examples=examples(10))
@given(messages(), st.sampled_from([0.0, 0.02]), st.integers(0, 100))
def test_a_bus_changes_times_alone(drawn: list[Message], loss: float, seed: int) -> None:
    plain = play(drawn, with_bus=False, loss=0.0, seed=seed)
    behind = play(drawn, with_bus=True, loss=loss, seed=seed)
    for one, other in zip(plain, behind, strict=True):
        for on_gpu in (False, True):
            there = other.buffer(on_gpu)
            if on_gpu:
                other.gpu.memory.flush()  # type: ignore[attr-defined]
                one.gpu.memory.flush()  # type: ignore[attr-defined]
            assert there.read() == one.buffer(on_gpu).read()


def test_data_takes_the_links_to_its_memory() -> None:
    message = Message(0, "write", True, False, 0, 10_000)
    sender, receiver = play([message], with_bus=True, loss=0.0, seed=0)
    sent = {tuple(ends): use.bytes for ends, use in sender.bus.links.items() if use.bytes}
    assert sent == {("GPU0", "sw0"): 10_000, ("sw0", "mlx5_0"): 10_000}
    arrived = {tuple(ends): use.bytes for ends, use in receiver.bus.links.items() if use.bytes}
    assert set(arrived.values()) == {10_000}
    assert ("sw0", "pci0000_17") in arrived


def test_a_full_buffer_discards_and_the_sender_sends_again() -> None:
    peers = [Peer(number, with_bus=True) for number in (1, 2)]
    port = peers[1].port
    assert isinstance(port, DmaPort)
    small = DmaPort(port.port, port._nic, port._routes, max_buffered=6000)
    network = Network(seed=1)
    ends = {"a": peers[0].attached, "b": Attached(peers[1].host.mac, small)}
    star(network, ends, Cable(us(1), gbps(400)))
    connect(peers[0].host, peers[0].qp, peers[1].host, peers[1].qp)
    data = bytes(range(256)) * (SIZE // 256)
    peers[0].memory.write(data)
    post(Message(0, "write", False, False, 0, SIZE // 2), *peers)
    network.wake("a")
    network.simulator.run()
    assert small.discarded > 0
    assert small.most_buffered <= 6000
    assert peers[1].memory.read(SIZE // 2) == data[: SIZE // 2]
