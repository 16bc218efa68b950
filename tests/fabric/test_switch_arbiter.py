"""Equal hosts get equal shares of a link, whatever their order and however full its queue is."""

from collections import Counter
from random import Random

import pytest

from rdmawire.fabric.host import Host
from rdmawire.fabric.network import Cable, Network, place_of, star
from rdmawire.fabric.pair import ATTRIBUTES, connect
from rdmawire.fabric.switch import Arbiter
from rdmawire.fabric.switch_config import KIB, MIB, SwitchSettings
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.units import gbps, ms, us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire.serial import HALF

SENDERS = 8
FRAMES = 16
"""Of the shares that are compared: so few that a frame more or less is within the bound."""


def _queue_pair(host: Host, kind: QPType) -> QueuePair:
    cq = host.nic.create_cq(1 << 12)
    return host.nic.create_qp(kind, QPInit(host.pd, cq, cq, QPCap(64, 1, 1, 1, 0)))


def _write(host: Host, sink: Host, kind: QPType) -> None:
    """Have a host write 4 MiB to the sink."""
    ours, theirs = _queue_pair(host, kind), _queue_pair(sink, kind)
    # Without a bound: who waits for a retransmission sends nothing, and that is not the switch's.
    in_flight = {"packets_in_flight": HALF - 1} if kind is QPType.RC else {}
    connect(host, ours, sink, theirs, ATTRIBUTES._replace(timeout=8), **in_flight)
    here, there = host.buffer(MIB), sink.buffer(MIB)
    work = SendWR(
        SendOpcode.RDMA_WRITE, (here.sge(),), remote_address=there.address, rkey=there.rkey
    )
    host.nic.post_send(ours, (work,) * 4)


def shares(kind: QPType, queue: int, seed: int) -> list[int]:
    """The frames of each sender that reach the sink within 3 ms of an incast."""
    network = Network(seed=seed, settings=SwitchSettings(queue=queue))
    hosts = {name: Host(place=place_of(number)) for number, name in enumerate(_names(), 1)}
    star(network, hosts, Cable(us(1), gbps(10)))
    sink, arrived = hosts["sink"], Counter[bytes]()
    network.tap("sink", lambda frame, _: arrived.update([frame.data[6:12]]), arrivals=True)
    for name in _names()[:-1]:
        _write(hosts[name], sink, kind)
    network.simulator.run(ms(3))
    return [arrived[hosts[name].mac] for name in _names()[:-1]]


def _names() -> list[str]:
    return [*(f"h{number}" for number in range(1, SENDERS + 1)), "sink"]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("queue", [64 * KIB, MIB])
@pytest.mark.parametrize("kind", [QPType.UC, QPType.RC])
def test_equal_hosts_of_an_incast_get_equal_shares(kind: QPType, queue: int, seed: int) -> None:
    found = shares(kind, queue, seed)
    even = sum(found) / SENDERS
    assert even > FRAMES
    assert max(abs(share - even) for share in found) < 0.05 * even


def test_the_same_seed_gives_the_same_shares() -> None:
    assert shares(QPType.RC, 64 * KIB, 3) == shares(QPType.RC, 64 * KIB, 3)


def test_the_port_that_kept_its_place_longest_ago_is_preferred() -> None:
    arbiter = Arbiter(Random(1))
    for port in (1, 2, 3):
        arbiter.keep(port)
    assert arbiter.prefers(1, 2)
    assert not arbiter.prefers(3, 2)
    assert arbiter.prefers(4, 1)  # it never had one
    arbiter.keep(1)
    assert arbiter.prefers(2, 1)


def test_a_tie_is_drawn() -> None:
    arbiter = Arbiter(Random(1))
    assert {arbiter.prefers(1, 2) for _ in range(16)} == {True, False}
