"""Comments of captures: what befell frames on their link."""

from pathlib import Path
from random import Random

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import FabricError
from rdmawire.fabric.capture import CaptureTap, Meter, Sampler
from rdmawire.fabric.fault import ACTIONS, Faults, Rule
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import FAULT_WORDS, Chances, Link, bit_times, duration
from rdmawire.fabric.network import Cable, Network, star
from rdmawire.fabric.pair import Pair
from rdmawire.fabric.simulator import Simulator
from rdmawire.units import gbps, us
from tests.fabric.talker import Talker, frames_of, mac_of

DATA = bytes(range(256)) * 16
FOURTH = {"bth.psn": 103}


def comments(path: Path) -> dict[int, tuple[str, ...]]:
    """By the number of the frame, those that have any."""
    with open_capture(path) as reader:
        return {n: record.comments for n, record in enumerate(reader, 1) if record.comments}


def said(link: Link, path: Path) -> dict[int, tuple[str, ...]]:
    """Of a WRITE of four packets, its ACK, and what was sent again."""
    pair = Pair(link=link)
    with pair.captured(path):
        pair.client.write(DATA, to=pair.server.region)
        pair.drive()
    assert pair.server.region.read(len(DATA)) == DATA
    return comments(path)


def test_every_fault_has_its_word() -> None:
    assert list(FAULT_WORDS) == list(ACTIONS)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (Rule("drop", FOURTH, nth=1), "lost"),
        (Rule("duplicate", FOURTH, nth=1), "duplicated"),
        (Rule("delay", FOURTH, nth=1), "delayed"),
        (Rule("reorder", FOURTH, nth=1), "reordered"),
        (Rule("corrupt", FOURTH, nth=1), "corrupted"),
        (Rule("truncate", FOURTH, nth=1), "truncated"),
        (Rule("set", FOURTH, nth=1, field="bth.resv7", value=1), "rewritten"),
    ],
)
def test_a_comment_names_the_fault_of_a_frame(rule: Rule, word: str, tmp_path: Path) -> None:
    link = Link(us(1), faults=Faults([rule]))
    assert said(link, tmp_path / "out.pcapng") == {4: (f"{word} on the link",)}


def test_all_faults_of_a_frame_are_in_one_comment(tmp_path: Path) -> None:
    twice = [Rule("delay", FOURTH, nth=1) for _ in range(2)]
    rules = Faults([Rule("duplicate", FOURTH, nth=1), *twice])
    found = said(Link(us(1), faults=rules), tmp_path / "out.pcapng")
    assert found == {4: ("duplicated on the link", "delayed on the link")}
    lost = Faults([Rule("delay", FOURTH, nth=1), Rule("drop", FOURTH, nth=1)])
    assert said(Link(us(1), faults=lost), tmp_path / "out.pcapng") == {4: ("lost on the link",)}


def test_nothing_is_said_where_nothing_changed(tmp_path: Path) -> None:
    """A frame that is not ECN-capable is not marked, and a field may have its value already."""
    idle = [Rule("mark"), Rule("set", field="bth.resv7", value=0), Rule("delay", by=0)]
    assert said(Link(us(1), faults=Faults(idle)), tmp_path / "out.pcapng") == {}


@pytest.mark.parametrize(
    ("link", "found"),
    [
        (Link(us(1), drop={2}), {2: ("lost on the link",)}),
        (Link(us(1), duplicate={2}), {2: ("duplicated on the link",)}),
        (Link(us(1), delay={5: us(3)}), {5: ("delayed on the link",)}),
    ],
)
def test_faults_by_number_are_named(
    link: Link, found: dict[int, tuple[str, ...]], tmp_path: Path
) -> None:
    assert said(link, tmp_path / "out.pcapng") == found


def test_faults_by_chance_are_named(tmp_path: Path) -> None:
    link = Link(us(1), chances=Chances(Random(1), drop=0.4))
    found = said(link, tmp_path / "out.pcapng")
    assert found
    assert set(found.values()) == {("lost on the link",)}


def test_a_frame_that_is_longer_than_the_link_takes_is_lost(tmp_path: Path) -> None:
    pair, path = Pair(link=Link(us(1), mtu=900)), tmp_path / "out.pcapng"
    with pair.captured(path):
        pair.client.write(DATA, to=pair.server.region)
        pair.drive(us(2))
    assert comments(path) == dict.fromkeys(range(1, 5), ("lost on the link",))


def test_a_pcap_has_no_room_for_comments(tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    assert said(Link(us(1), drop={2}), path) == {}
    with open_capture(path) as reader:
        assert len(list(reader)) > 5


def test_the_same_bytes_twice_are_two_frames(tmp_path: Path) -> None:
    """What befell the second is not said of the first, though both have the same bytes."""
    path, data = tmp_path / "out.pcapng", bytes(60)
    with CaptureTap(path) as tap:
        for number, words in enumerate(((), ("lost",), ()), 1):
            frame = Envelope(data, number)
            tap(frame, 0)
            tap.carried(frame, words)
    assert comments(path) == {2: ("lost on the link",)}


def test_a_frame_seen_at_two_points_has_its_comment_at_both(tmp_path: Path) -> None:
    path, frame = tmp_path / "out.pcapng", Envelope(bytes(60), 1)
    with CaptureTap(path) as tap:
        for name in "host", "link":
            tap.point(name)(frame, 0)
        tap.carried(frame, ("lost",))
    with open_capture(path) as reader:
        found = [(reader.interfaces[r.interface].name, r.comments) for r in reader]
    assert found == [("host", ("lost on the link",)), ("link", ("lost on the link",))]


def test_points_are_all_the_interfaces_that_there_are(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with CaptureTap(path) as tap:
        tap.point("one")
        tap.point("two")
    with open_capture(path) as reader:
        assert list(reader) == []
        assert [interface.name for interface in reader.interfaces] == ["one", "two"]


def test_a_capture_of_nothing_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with CaptureTap(path):
        pass
    with open_capture(path) as reader:
        assert list(reader) == []
        assert len(reader.interfaces) == 1


def test_a_tap_is_whole_once_it_is_closed_and_may_be_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "closed.pcapng"
    tap = CaptureTap(path)
    tap(Envelope(bytes(60)), 7)
    assert not path.exists()
    tap.close()
    tap.close()
    with open_capture(path) as reader:
        assert [(record.data, record.time_ns) for record in reader] == [(bytes(60), 7)]


CABLE = Cable(us(1), gbps(10))
FRAMES = 100


def test_samples_are_taken_every_so_often_up_to_the_end() -> None:
    simulator = Simulator()
    simulator.run(until=us(3))
    sampler = Sampler(simulator, us(2))
    seen = sampler.watch(lambda: simulator.now)
    sampler.begin(until=us(9))
    simulator.run()
    assert sampler.times == seen == [us(5), us(7), us(9)]
    assert simulator.now == us(9)


def test_a_rate_is_what_was_added_since_the_last_sample() -> None:
    simulator, data = Simulator(), [0]
    sampler = Sampler(simulator, us(1))
    rates = sampler.rate(lambda: data[0])
    for time, more in ((us(0.5), 125), (us(2.2), 250), (us(2.4), 125)):
        simulator.call_at(time, lambda more=more: data.append(data.pop() + more))  # type: ignore[misc]
    sampler.begin(until=us(4))
    simulator.run()
    assert rates == [gbps(1), 0, gbps(3), 0]


def talked(*, sampled: bool) -> tuple[Network, list[float], list[float], dict[str, Talker]]:
    """Two hosts talk to a third at once; the queue to it and the rate of one of them."""
    network, machines = Network(), {f"h{n}": Talker(n) for n in range(1, 4)}
    star(network, machines, CABLE)
    for number in (1, 2):
        machines[f"h{number}"].frames.extend(frames_of(number, 3, FRAMES))
    port, meter, sampler = network.ports["s1:h3"], Meter(), Sampler(network.simulator, us(10))
    queue = sampler.watch(lambda: port.egress.bytes[0])
    rate = sampler.rate(lambda: meter.bytes[mac_of(1)])
    if sampled:
        network.tap("s1:h3", meter)
        sampler.begin(until=us(300))
    network.simulator.run()
    return network, queue, rate, machines


def test_two_senders_share_a_port_and_its_queue_grows_and_drains() -> None:
    _, queue, rate, _ = talked(sampled=True)
    length = 2 * FRAMES * duration(bit_times(1058), gbps(10))
    assert max(queue) > 0.4 * FRAMES * 1058
    assert queue[-1] == 0
    assert sum(rate) * us(10) == pytest.approx(FRAMES * 1058 * 8 * 1e9)
    full = rate[2 : length // us(10) - 2]
    assert len(full) > 10
    assert all(gbps(4) < one < gbps(6) for one in full)


def test_who_is_sampled_does_what_it_would_do_alone() -> None:
    received = [
        [t.received for t in talked(sampled=sampled)[3].values()] for sampled in (True, False)
    ]
    assert received[0] == received[1]


def test_samples_that_never_move_on_are_refused() -> None:
    for every in (None, "x", 1.5, -1, 0):
        with pytest.raises(FabricError, match=r"Sampler.every: .* is not a number of nanoseconds"):
            Sampler(Simulator(), every)  # type: ignore[arg-type]
