"""Equal paths: by flow, in turn, or by the shortest queue; and what RC, UC and UD do about it."""

from collections import Counter
from collections.abc import Callable

import pytest

from rdmawire.errors import FabricError
from rdmawire.fabric import CAP, Cable, Host, Network, SwitchSettings, connect, place_of
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib import QPInit, QueuePair
from rdmawire.units import gbps, us
from rdmawire.verbs import QPType, RecvWR, SendFlags, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.opcode import Opcode

SIZE = 64 * 1024
DATA = bytes(range(256)) * (SIZE // 256)


class Paths:
    """Two hosts on two leaves, with two spines between them; ``far`` is the latency of the second.

    ``arrived`` are the packet sequence numbers of requests, in the order of arrival.
    """

    def __init__(self, balancing: str, far: int = us(1)) -> None:
        settings = SwitchSettings(balancing=balancing)
        self.network = Network(seed=1, settings=settings)
        self.hosts = [Host(place=place_of(number)) for number in (1, 2)]
        for name in ("leaf1", "leaf2", "near", "far"):
            self.network.add_switch(name)
        edge = Cable(us(1), gbps(100))
        for leaf in ("leaf1", "leaf2"):
            self.network.join(leaf, "near", edge.link())
            self.network.join(leaf, "far", Cable(far, gbps(100)).link())
        for number, host in enumerate(self.hosts, 1):
            self.network.add_host(f"h{number}", host)
            self.network.join(f"h{number}", f"leaf{number}", edge.link())
        self.network.find_routes()
        self.arrived: list[int] = []
        self.by_spine: Counter[str] = Counter()
        self.network.tap("h2", self._count, arrivals=True)
        for spine in ("near", "far"):
            self.network.tap(f"leaf1:{spine}", self._counter(spine))

    def _count(self, frame: Envelope, _now: int) -> None:
        packet = roce.parse(frame.data).packet
        if Opcode(packet.bth.opcode) is not Opcode.RC_ACKNOWLEDGE:
            self.arrived.append(packet.bth.psn)

    def _counter(self, spine: str) -> Callable[[Envelope, int], None]:
        def count(frame: Envelope, _now: int) -> None:
            self.by_spine[spine] += len(frame.data)

        return count

    def queue_pairs(self, kind: QPType) -> list[QueuePair]:
        found = []
        for host in self.hosts:
            cq = host.nic.create_cq(256)
            found.append(host.nic.create_qp(kind, QPInit(host.pd, cq, cq, CAP)))
        return found

    def write(self, kind: QPType) -> bytes:
        """Write the data, and return what is in the target's memory at the end."""
        one, other = self.hosts
        qps = self.queue_pairs(kind)
        connect(one, qps[0], other, qps[1], ATTRIBUTES)
        source, target = one.filled(DATA), other.buffer(SIZE)
        work = SendWR(
            SendOpcode.RDMA_WRITE,
            (source.sge(),),
            remote_address=target.address,
            rkey=target.rkey,
            flags=SendFlags.SIGNALED,
        )
        qps[0].post_send((work,))
        self.network.simulator.run()
        return target.read()


@pytest.mark.parametrize("far", [us(1), us(4)])
def test_a_flow_keeps_its_path(far: int) -> None:
    paths = Paths("flow", far)
    assert paths.write(QPType.RC) == DATA
    assert len(paths.by_spine) == 1
    assert paths.arrived == sorted(paths.arrived)


@pytest.mark.parametrize("balancing", ["packet", "adaptive"])
def test_packets_of_a_flow_take_all_paths(balancing: str) -> None:
    paths = Paths(balancing)
    assert paths.write(QPType.RC) == DATA
    near, far = paths.by_spine["near"], paths.by_spine["far"]
    assert abs(near - far) < 0.1 * (near + far)


def test_rc_goes_back_when_packets_overtake() -> None:
    paths = Paths("packet", us(4))
    assert paths.write(QPType.RC) == DATA
    assert paths.arrived != sorted(paths.arrived)
    assert len(paths.arrived) > SIZE // 1024


def test_uc_gives_up_a_message_whose_packets_overtake() -> None:
    paths = Paths("packet", us(4))
    found = paths.write(QPType.UC)
    assert found[:1024] == DATA[:1024]
    assert not any(found[-1024:])
    assert len(paths.arrived) == SIZE // 1024


def test_datagrams_all_arrive_in_another_order() -> None:
    paths = Paths("packet", us(4))
    one, other = paths.hosts
    qps = paths.queue_pairs(QPType.UD)
    for host, qp in zip(paths.hosts, qps, strict=True):
        host.bring_up(qp, ATTRIBUTES)
    source, target = one.filled(DATA[:1024]), other.buffer(32 * 2048)
    for number in range(32):
        qps[1].post_recv((RecvWR((target.sge(2048, number * 2048),), wr_id=number),))
    for number in range(32):
        work = SendWR(
            SendOpcode.SEND_WITH_IMM,
            (source.sge(),),
            imm_data=number,
            ah=one.path_to(other),
            remote_qpn=qps[1].qp_num,
            remote_qkey=ATTRIBUTES.qkey,
        )
        qps[0].post_send((work,))
    paths.network.simulator.run()
    found = [completion.imm_data for completion in qps[1].recv_cq.poll(64)]
    assert sorted(found) == list(range(32))
    assert found != sorted(found)


def test_an_unknown_balancing_is_refused() -> None:
    with pytest.raises(FabricError, match="balancing"):
        SwitchSettings(balancing="spray")
