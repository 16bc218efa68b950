"""Networks by name: ways, taps, faults, adapters across switches, and the same bytes always."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import FabricError, VerbsError
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.fault import Rule
from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link, bit_times, duration
from rdmawire.fabric.network import Cable, Network, leaf_spine, place_of, row, star
from rdmawire.fabric.pair import ATTRIBUTES, CAP
from rdmawire.fabric.switch_config import KIB, Marking, Pausing, SwitchSettings
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.units import gbps, us
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.inet import ECN, UDP
from tests.fabric.talker import Talker, frame_of, frames_of, mac_of

PSNS = ATTRIBUTES._replace(sq_psn=5, rq_psn=5)
CABLE = Cable(us(1), gbps(100))
SETTINGS = SwitchSettings(
    marking={0: Marking(4 * KIB, 64 * KIB, 0.5)}, pausing={0: Pausing(64 * KIB, 32 * KIB, 64 * KIB)}
)


class Flow:
    """A connection from one host to another, and what it carries."""

    def __init__(self, source: Host, sink: Host, data: bytes) -> None:
        self.data = data
        self.source, self.sink = source.filled(data), sink.buffer(len(data))
        self.cq = source.nic.create_cq(64)
        self.qp, peer = made(source, self.cq), made(sink, sink.nic.create_cq(64))
        for host, own, other, others in (
            (source, self.qp, sink, peer),
            (sink, peer, source, self.qp),
        ):
            path = host.path_to(other)._replace(traffic_class=ECN.ECT_0)
            host.bring_up(own, PSNS._replace(ah=path, dest_qp_num=others.qp_num))
        self.host = source

    def post(self, now: int = 0) -> None:
        wr = SendWR(
            SendOpcode.RDMA_WRITE,
            (self.source.sge(),),
            remote_address=self.sink.address,
            rkey=self.sink.rkey,
        )
        self.host.nic.post_send(self.qp, (wr,))

    @property
    def done(self) -> bool:
        statuses = [done.status for done in self.cq.poll(9)]
        return statuses == [WCStatus.SUCCESS] and self.sink.read() == self.data


def made(host: Host, cq: CompletionQueue) -> QueuePair:
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))


def hosts(count: int) -> dict[str, Host]:
    return {f"h{n}": Host(place=place_of(n)) for n in range(1, count + 1)}


def talkers(count: int) -> dict[str, Talker]:
    return {f"h{n}": Talker(n) for n in range(1, count + 1)}


def busy(seed: int = 1) -> tuple[Network, list[Flow]]:
    """Six hosts on two leaves and two spines; all write to the next, and two to the first."""
    network, machines = Network(seed=seed, settings=SETTINGS), hosts(6)
    leaf_spine(network, machines, leaves=2, spines=2, edge=CABLE, trunk=CABLE)
    network.set_faults("h2-leaf2", Rule("drop", chance=0.02), Rule("delay", chance=0.02, by=us(3)))
    ends = [*machines.values()]
    pairs = [*zip(ends, ends[1:] + ends[:1], strict=True), (ends[2], ends[0]), (ends[4], ends[0])]
    flows = [Flow(one, other, bytes(range(256)) * 150) for one, other in pairs]
    for flow in flows:
        flow.post()
    return network, flows


def test_adapters_communicate_across_switches_that_mark_pause_and_lose() -> None:
    network, flows = busy()
    network.simulator.run()
    assert all(flow.done for flow in flows)
    assert sum(port.marks.total() for port in network.ports.values()) > 0
    assert network.links["h2-leaf2"].faults.rules[0].hits > 0  # type: ignore[union-attr]


def test_a_row_of_switches_adds_a_hop_each() -> None:
    times = []
    for switches in (2, 3, 4):
        between = {f"h{n}": Talker(n) for n in range(1, switches - 1)}
        machines = {"a": Talker(8, frames_of(8, 9, 1)), **between, "b": Talker(9)}
        network = Network()
        row(network, machines, switches=switches, edge=CABLE, trunk=CABLE)
        network.simulator.run()
        times.append(machines["b"].received[0].time)
    hop = us(1) + duration(bit_times(len(frame_of(8, 9))), CABLE.rate)
    assert [later - sooner for sooner, later in pairwise(times)] == [hop, hop]
    assert times[0] == 3 * hop


def test_flows_take_all_ways_and_each_only_one() -> None:
    network, machines = Network(), talkers(4)
    leaf_spine(network, machines, leaves=2, spines=4, edge=CABLE, trunk=CABLE)
    frames = [frame_of(1, 2, psn, port=0xC000 + n) for n in range(64) for psn in range(3)]
    machines["h1"].frames.extend(frames)
    ways: dict[int, set[str]] = {}

    def note(frame: bytes, spine: str) -> None:
        udp = roce.parse(frame).headers[2]
        assert isinstance(udp, UDP)
        ways.setdefault(udp.srcport, set()).add(spine)

    for spine in ("spine1", "spine2", "spine3", "spine4"):
        network.tap(f"leaf1-{spine}", lambda frame, _, spine=spine: note(frame.data, spine))  # type: ignore[misc]
    network.simulator.run()
    assert len(machines["h2"].received) == len(frames)
    assert all(len(taken) == 1 for taken in ways.values())
    assert len(set.union(*ways.values())) == 4


def test_hosts_on_one_leaf_use_no_spine() -> None:
    network, machines = Network(), talkers(4)
    leaf_spine(network, machines, leaves=2, spines=2, edge=CABLE, trunk=CABLE)
    machines["h1"].frames.append(frame_of(1, 3))
    network.simulator.run()
    assert len(machines["h3"].received) == 1
    assert [link.frames for name, link in network.links.items() if "spine" in name] == [0] * 4


def test_points_of_a_capture_have_names_and_times(tmp_path: Path) -> None:
    network, machines, path = Network(), talkers(2), tmp_path / "points.pcapng"
    star(network, machines, CABLE)
    machines["h1"].frames.append(frame_of(1, 2))
    with CaptureTap(path, epoch=10**18) as tap:
        network.tap("h1", tap.point("h1"))
        network.tap("h2-s1", tap.point("h2-s1"), arrivals=True)
        network.tap("s1:h1", tap.point("never"))
        network.simulator.run()
    with open_capture(path) as reader:
        seen = [(r.time_ns - 10**18, reader.interfaces[r.interface].name) for r in reader]
    assert seen == [(0, "h1"), (machines["h2"].received[0].time, "h2-s1")]


def test_a_fault_applies_to_its_link_only() -> None:
    network, machines = Network(), talkers(3)
    star(network, machines, CABLE)
    faults = network.set_faults("h2-s1", Rule("drop", {"bth.psn": 1}))
    for number in (2, 3):
        machines["h1"].frames.extend(frames_of(1, number, 3))
    network.simulator.run()
    assert machines["h2"].psns == [0, 2]
    assert machines["h3"].psns == [0, 1, 2]
    assert [rule.hits for rule in faults.rules] == [1]


def test_work_can_begin_at_its_time() -> None:
    network, machines = Network(), hosts(2)
    star(network, machines, CABLE)
    sent: list[int] = []
    flow = Flow(machines["h1"], machines["h2"], b"later")
    network.tap("h1", lambda _, now: sent.append(now))

    def begin() -> None:
        flow.post(network.simulator.now)
        network.wake("h1")

    network.simulator.call_at(us(50), begin)
    network.simulator.call_at(us(60), lambda: None).cancel()
    network.simulator.run(us(1000))
    assert sent[0] == us(50)
    assert flow.done


def test_names() -> None:
    network = Network()
    network.add_switch("s")
    network.add_host("h", Talker(1))
    network.join("h", "s", Link())
    for wrong, reason in (
        (lambda: network.add_host("s", Talker(2)), "'s' is there already"),
        (lambda: network.join("h", "t", Link()), "called 't'"),
        (lambda: network.join("s", "h", Link()), "'s-h' is there already"),
        (lambda: network.tap("x", print), "no link is called 'x'"),
        (lambda: network.set_faults("x"), "no link is called 'x'"),
    ):
        with pytest.raises(FabricError, match=reason):
            wrong()
    network.add_switch("t")
    with pytest.raises(FabricError, match="'h' is on a link already"):
        network.join("h", "t", Link())


def test_places_of_many_hosts() -> None:
    places = {place_of(number) for number in range(1, 2000)}
    assert len(places) == 1999
    assert place_of(1) == (mac_of(1), Host(1).gid)
    with pytest.raises(VerbsError, match="host number 0"):
        place_of(0)


def test_generators_do_not_depend_on_one_another() -> None:
    one, other = Network(seed=1), Network(seed=2)
    assert one.random("s").random() == Network(seed=1).random("s").random()
    assert one.random("s").random() != one.random("t").random()
    assert one.random("s").random() != other.random("s").random()


@pytest.mark.parametrize("number", [0, -1, 1 << 40, None, 1.5])
def test_shapes_have_some_switches(number: Any) -> None:
    hosts = {"a": Talker(1)}
    with pytest.raises(FabricError, match=r"row.switches: .* is not a number of switches from 1"):
        row(Network(), hosts, switches=number, edge=CABLE, trunk=CABLE)
    with pytest.raises(FabricError, match=r"leaf_spine.leaves: "):
        leaf_spine(Network(), hosts, leaves=number, spines=1, edge=CABLE, trunk=CABLE)
    with pytest.raises(FabricError, match=r"leaf_spine.spines: "):
        leaf_spine(Network(), hosts, leaves=1, spines=number, edge=CABLE, trunk=CABLE)
