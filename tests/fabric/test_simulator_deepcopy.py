"""Deep copies of pairs, worlds and adapters: the same future, and nothing in common.

What both copies may have in common are values that never change, and what was never theirs:
classes, functions, and sources that have no state.
"""

import gc
from collections.abc import Callable
from copy import deepcopy
from enum import Enum
from pathlib import Path
from random import Random, SystemRandom
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import pytest

from rdmawire.errors import FabricError
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.host import ALL_ACCESS, Host, Registered
from rdmawire.fabric.link import Chances, Link
from rdmawire.fabric.network import Cable, Network, row, star
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.fabric.switch_config import KIB, Marking, Pausing, SwitchSettings
from rdmawire.ib.congestion.dcqcn import Dcqcn
from rdmawire.memory.gpu.device import H200
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.gpu.peermem import Peermem
from rdmawire.units import gbps, us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA, RXE
from tests.fabric.test_network import Flow
from tests.ib.cm.stage import SERVICE, Two

DATA = bytes(range(256)) * 40

NEVER_CHANGES = (
    *(int, float, str, bytes, bool, type(None), type, ModuleType, FunctionType),
    *(BuiltinFunctionType, MappingProxyType, SystemRandom, Enum),
)


def is_shared(thing: object) -> bool:
    """Whether a copy has the thing itself, and all that is in it."""
    copies = getattr(type(thing), "__deepcopy__", None)
    return isinstance(thing, NEVER_CHANGES) or (copies is not None and copies(thing, {}) is thing)


def reached(thing: object) -> dict[int, object]:
    """All that a thing is made of, but for classes and what copies share."""
    found: dict[int, object] = {}
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) not in found and not is_shared(one):
            found[id(one)] = one
            waiting.extend(part for part in gc.get_referents(one))
    return found


def common(one: object, other: object) -> list[object]:
    """What both are made of, and one might change for the other; tuples by what is in them."""
    theirs = reached(other)
    found = (thing for number, thing in reached(one).items() if number in theirs)
    return [thing for thing in found if not isinstance(thing, (tuple, frozenset))]


Sent = list[tuple[int, bytes]]


def future(pair: Pair) -> tuple[Sent, list[object]]:
    """What happens from here on: frames with their times, and what both ends find."""
    sent: Sent = []

    def tap(frame: Envelope, now: int) -> None:
        sent.append((now, frame.data))

    pair.simulator.on_sent.append(tap)
    pair.drive()
    pair.simulator.on_sent.remove(tap)
    ends = (pair.client, pair.server)
    found: list[object] = [(end.poll(), end.events(), end.region.read(9000)) for end in ends]
    found.append([dict(end.nic.drops) for end in ends])
    return sent, found


def busy(pair: Pair, until: int = 2100) -> Pair:
    """In the middle of everything: messages, READs, atomics, receives, losses."""
    client, server = pair.client, pair.server
    if pair.client.qp.service.connected:
        client.write(DATA, to=server.region)
    if pair.client.qp.service.reliable:
        client.read(9000, of=server.region)
        client.fetch_add(5, of=server.region)
        server.write(DATA[:3000], to=client.region)
        client.write(DATA[::-1], to=server.region)
    server.receive(4096)
    client.send(DATA[:900])
    client.send(b"no receive for this one")
    pair.drive(until)
    return pair


PAIRS: dict[str, Callable[[], Pair]] = {
    "RC": lambda: Pair(Link(us(1))),
    "RC, rxe": lambda: Pair(Link(us(1)), profile=RXE, peer_profile=IBTA),
    "RC, IPv6": lambda: Pair(Link(us(1)), ipv6=True),
    "RC, losses": lambda: Pair(Link(us(1), drop={3, 7, 11, 20})),
    "RC, chance": lambda: Pair(Link(us(1), chances=Chances(Random(4), 0.1, 0.1, 0.2))),
    "RC, at a rate": lambda: Pair(Link(us(1), rate=gbps(10))),
    "RC, drawn numbers": lambda: Pair(Link(us(1)), random=Random(1)),
    "RC, entropy": lambda: Pair(Link(us(1)), random=SystemRandom()),
    "UC": lambda: Pair(Link(us(1)), kind=QPType.UC),
    "UD": lambda: Pair(Link(us(1)), kind=QPType.UD),
}


@pytest.mark.parametrize("until", [0, 900, 2100])
@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_copies_of_a_pair_have_the_same_future_each_by_itself(
    make: Callable[[], Pair], until: int
) -> None:
    pair = busy(make(), until)
    copied = deepcopy(pair)
    assert common(pair, copied) == []
    twice = deepcopy(copied)
    first = future(copied)
    assert future(pair) == first
    assert future(twice) == first
    if pair.client.qp.service.connected:
        assert pair.server.region.read(len(DATA)) in (DATA, DATA[::-1])


def test_what_is_done_to_a_copy_is_not_done_to_the_original() -> None:
    pair = busy(Pair(Link(us(1))))
    copied = deepcopy(pair)
    copied.server.region.write(b"another past")
    copied.client.nic.destroy_qp(copied.client.qp)
    copied.server.nic.up = False
    copied.drive()
    expected = future(busy(Pair(Link(us(1)))))
    assert future(pair) == expected


def test_an_adapter_is_copied_with_its_queue_pairs_and_memory() -> None:
    pair = Pair()
    pair.client.write(DATA, to=pair.server.region)
    pair.client.nic.transmit(0, 3)
    copied = deepcopy(pair.client.nic)
    assert copied.transmit(0) == pair.client.nic.transmit(0) != []
    assert copied.device.qps[pair.client.qp.qp_num] is not pair.client.qp
    assert copied.next_timer() == pair.client.nic.next_timer()
    copied.handle_timer(copied.next_timer() or 0)
    assert copied.transmit(0) != []
    assert pair.client.nic.transmit(0) == []


def test_a_queue_pair_is_copied_with_its_adapter() -> None:
    pair = Pair()
    qp = pair.client.qp
    pair.client.write(DATA, to=pair.server.region)
    copied = deepcopy(qp)
    assert copied.device.qps[qp.qp_num] is copied
    copied.fail()
    assert (len(copied.sq), len(qp.sq)) == (0, 1)
    assert copied.send_cq is not qp.send_cq
    assert len(qp.send_cq) == 0


def test_copies_of_a_world_with_gpus_have_memory_of_their_own() -> None:
    pair = Pair(Link(us(1)))
    driver = GpuDriver(pair.server.space)
    pair.server.nic.memory.clients.append(Peermem(driver))
    gpu = driver.add(H200)
    address = gpu.allocate(1 << 16).address
    region = pair.server.nic.memory.reg_mr(pair.server.pd, address, 1 << 16, ALL_ACCESS)
    there = Registered(gpu, region)
    pair.client.write(DATA, to=there)
    pair.drive(until=1)
    simulator = pair, gpu, there
    other, its_gpu, _ = deepcopy(simulator)
    assert common(simulator, (other, its_gpu)) == []
    other.drive()
    assert its_gpu.read(address, len(DATA)) == DATA
    assert gpu.read(address, len(DATA)) != DATA
    pair.drive()
    assert gpu.read(address, len(DATA)) == DATA
    its_gpu.write(address, b"changed")
    assert there.read(7) == DATA[:7]


def test_copies_of_managed_ports_draw_the_same_numbers() -> None:
    two = Two()
    two.request()
    two.drive(us(1))
    copied = deepcopy(two)
    ends = []
    for one in (two, copied):
        one.server.take_events()
        one.drive(us(3))
        one.server.accept()
        one.drive(us(10))
        one.request()
        one.drive(us(10))
        messages = [(sent.time, sent.attribute, sent.received) for sent in one.sent]
        ends.append((messages, one.client.names(), one.server.names()))
    assert ends[0] == ends[1]
    assert len(ends[0][0]) == 4
    copied.server.manager.stop_listening(SERVICE)
    assert two.server.manager.listener(SERVICE, datagrams=False) is not None


def networked() -> tuple[Network, list[Flow]]:
    """Hosts at a switch that marks and pauses, three of them talking to the fourth."""
    marking, pausing = Marking(4 * KIB, 64 * KIB, 0.5), Pausing(64 * KIB, 32 * KIB, 64 * KIB)
    network = Network(settings=SwitchSettings(marking={0: marking}, pausing={0: pausing}), seed=3)
    hosts = {f"h{number}": Host(number) for number in range(1, 5)}
    star(network, hosts, Cable(us(1), gbps(100)))
    *sources, sink = hosts.values()
    flows = [Flow(source, sink, DATA * 4) for source in sources]
    for flow in flows:
        flow.host.nic.control_congestion(flow.qp, Dcqcn())
        flow.post()
    return network, flows


def at_rest(network: Network, flows: list[Flow]) -> list[Any]:
    network.simulator.run()
    return [network.simulator.now, *(flow.cq.poll(9) for flow in flows)]


def test_copies_of_a_network_have_the_same_future() -> None:
    network, flows = networked()
    network.simulator.run(until=us(4))
    copied = deepcopy((network, flows))
    assert at_rest(*copied) == at_rest(network, flows)


def test_a_long_row_of_switches_is_copied_without_end_of_stack() -> None:
    network, cable = Network(), Cable(us(1), gbps(100))
    hosts = {f"h{number}": Host(number) for number in range(1, 3)}
    row(network, hosts, switches=60, edge=cable, trunk=cable)
    copied = deepcopy(network)
    assert copied.hosts.keys() == network.hosts.keys()
    assert common(network, copied) == []


def test_a_world_that_is_captured_is_not_copied(tmp_path: Path) -> None:
    pair = Pair()
    with pair.captured(tmp_path / "a.pcap"), pytest.raises(FabricError) as refused:
        deepcopy(pair)
    assert "captured" in str(refused.value)
    with CaptureTap(tmp_path / "b.pcap") as tap, pytest.raises(FabricError):
        deepcopy(tap)
    assert deepcopy(pair).client.nic is not pair.client.nic


def test_rows_of_tables_are_the_same_in_all_copies() -> None:
    pair = busy(Pair(Link(us(1)), attributes=ATTRIBUTES))
    copied = deepcopy(pair)
    assert copied.client.qp.service is pair.client.qp.service
    assert copied.client.nic.device.profile is IBTA
    assert copied.server.qp.inbound.recv is pair.server.qp.inbound.recv
