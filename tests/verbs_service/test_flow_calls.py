"""Raw packet queue pairs of programs: frames on each network, flows, sniffers, and RSS."""

import subprocess
from array import array
from collections.abc import Iterator
from errno import EBUSY, EINVAL, ENOMEM, EOPNOTSUPP
from pathlib import Path
from shutil import which

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.flow_steering import RSS_KEY, rss_hash
from rdmawire.verbs_service import flow_calls, network_of
from rdmawire.verbs_service.device import EmulatedDevice, numbered
from tests.verbs_service.c_programs import environment, library
from tests.verbs_service.client import (
    SUCCESS,
    WRITE,
    Client,
    CompletionQueue,
    QueuePair,
    wait_until,
)
from tests.verbs_service.raw import (
    ALL_DEFAULT,
    DONT_TRAP,
    DROP,
    EGRESS,
    ETH,
    GRE,
    GROUP,
    IPV4,
    IPV4_EXT,
    IPV6,
    MACS,
    MC_DEFAULT,
    NORMAL,
    RAW,
    SIZE,
    SNIFFER,
    UNKNOWN,
    VXLAN,
    Station,
    address,
    create_flow,
    eth_spec,
    frame,
    spec,
    station,
    tag_spec,
    udp_frame,
    udp_spec,
)
from tests.verbs_service.running import Service, connected, running
from tests.waiting import HANG

LOC_LEN_ERR, FLUSHED = 1, 5
UDP_PORTS, TCP_PORTS, ADDRESSES = 0xC0, 0x30, 0x3


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service"), specs=numbered(3)) as found:
        yield found


@pytest.fixture
def stations(service: Service) -> Iterator[list[Station]]:
    made = [station(service, index) for index in range(3)]
    yield made
    for one in made:
        one.client.close()


def test_frames_go_where_their_address_is(stations: list[Station]) -> None:
    """To groups and unknown addresses: to all other devices; to a group also to the sender's."""
    for one in stations:
        one.flow()
        one.expect(4)
    frames = [frame(dst, number) for number, dst in enumerate((MACS[1], GROUP, UNKNOWN, MACS[0]))]
    stations[0].post(*frames)
    assert stations[1].received(3) == frames[:3]
    assert stations[2].received(2) == frames[1:3]
    own = stations[0].cq.wait(2)
    assert [stations[0].bytes_of(done) for done in own] == [frames[1], frames[3]]


@pytest.mark.parametrize("text", ["latency=1us", "packet-spray"])
def test_frames_cross_links_and_switches(tmp_path: Path, text: str) -> None:
    network, specs = network_of(text, 2)
    with running(tmp_path, network, specs) as service:
        first, second = station(service, 0), station(service, 1)
        second.flow()
        second.expect(2)
        mac = service.server.devices[1].mac
        frames = [frame(mac, 1), frame(b"\xff" * 6, 2, 1514)]
        first.post(*frames)
        assert second.received(2) == frames


@pytest.mark.parametrize(
    ("specs", "taken"),
    [
        ((), {0, 1, 2, 3}),
        ((eth_spec(MACS[1]),), {1, 2, 3}),
        ((eth_spec(MACS[1], 0x88B5),), {1}),
        ((eth_spec(ethertype=0x0800), udp_spec(7)), {2}),
        ((spec(IPV4, bytes(4) + address(2), bytes(4) + b"\xff" * 4),), {2, 3}),
        ((spec(IPV4_EXT, bytes(8) + b"\x11\0\0\0", bytes(8) + b"\xff\0\0\0"),), {2, 3}),
        ((spec(IPV4_EXT, bytes(10) + b"\x40\0", bytes(10) + b"\xff\0"),), {2, 3}),
        ((spec(IPV4_EXT, bytes(10) + b"\x41\0", bytes(10) + b"\xff\0"),), set()),
        ((spec(IPV6, bytes(40), bytes(40)),), set()),
    ],
)
def test_flows_match_what_their_specifications_say(
    stations: list[Station], specs: tuple[bytes, ...], taken: set[int]
) -> None:
    """A frame that the flow does not take goes to one behind it."""
    sender, one, _ = stations
    other = station_of(one)
    one.flow(*specs)
    create_flow(one.client, other, kind=ALL_DEFAULT)
    one.expect(4)
    for number in range(4, 8):
        one.client.receive(other, one.memory.sge(SIZE * number, SIZE), wr_id=number)
    frames = [
        frame(GROUP),
        frame(MACS[1]),
        udp_frame(MACS[1], 7),
        udp_frame(MACS[1], 9),
    ]
    sender.post(*frames)
    done = one.cq.wait(4)
    found = {one.bytes_of(each): each.qp_num == one.qp.number for each in done}
    assert {number for number in range(4) if found[frames[number]]} == taken


def station_of(one: Station) -> QueuePair:
    """Another raw packet queue pair that completes to the CQ of a station."""
    qp = one.client.create_qp(one.cq, kind=RAW)
    one.client.bring_up_raw(qp)
    return qp


def test_priorities_copies_tags_and_drops(stations: list[Station]) -> None:
    sender, one, other = stations
    one.flow(eth_spec(GROUP), tag_spec(5), priority=1)
    one.flow(eth_spec(GROUP), tag_spec(6), priority=0, flags=DONT_TRAP)
    one.flow(eth_spec(MACS[1]), spec(DROP, b"", b"", 6))
    one.flow(kind=ALL_DEFAULT)
    other.flow(kind=MC_DEFAULT)
    one.expect(4)
    other.expect(4)
    frames = [frame(GROUP, 1), frame(MACS[1], 2), frame(UNKNOWN, 3)]
    sender.post(*frames)
    done = one.cq.wait(3)
    assert [one.bytes_of(each) for each in done] == [frames[0], frames[0], frames[2]]
    tags = [int.from_bytes(each.imm_data.to_bytes(4, "little"), "big") for each in done]
    assert tags == [6, 5, 0]
    assert {each.wc_flags for each in done} == {0}
    assert other.received(1) == [frames[0]]


def test_a_sniffer_sees_what_is_sent_and_received(service: Service) -> None:
    """Also messages that need no packets without it."""
    one, other = connected(service)
    sniffers = [station(service, 0), station(service, 1)]
    source, sink = one.client.buffer(64), other.client.buffer(64)
    place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
    for _ in range(2):  # the second finds the connection that needs no packets
        one.client.send(one.qp, source.sge(), opcode=WRITE, **place)
        one.cq.wait()
    for sniffer in sniffers:
        sniffer.flow(kind=SNIFFER)
        sniffer.expect(8)
    source.memory[:5] = b"hello"
    one.client.send(one.qp, source.sge(), opcode=WRITE, **place)
    assert one.cq.wait()[0].status == SUCCESS
    assert sink.memory[:5] == b"hello"
    seen = [sniffer.received(2) for sniffer in sniffers]
    assert seen[0] == seen[1]
    request, ack = seen[0]
    assert b"hello" in request
    assert (request[:6], ack[:6]) == (MACS[1], MACS[0])
    for client in (one.client, other.client, *(sniffer.client for sniffer in sniffers)):
        client.close()


@pytest.mark.parametrize(
    ("specs", "options", "error"),
    [
        ((spec(GRE, bytes(8), bytes(8)),), {}, EOPNOTSUPP),
        ((spec(0x100 | VXLAN, bytes(4), bytes(4)),), {}, EOPNOTSUPP),
        ((spec(VXLAN, b"\x01\0\0\0", b"\xff" * 4),), {}, EINVAL),
        ((spec(IPV4_EXT, bytes(12), bytes(11) + b"\x01"),), {}, EOPNOTSUPP),
        ((spec(IPV6, bytes(40), bytes(32) + b"\xff" * 4 + bytes(4)),), {}, EINVAL),
        ((eth_spec(ethertype=0x0800), spec(IPV6, bytes(40), bytes(40))), {}, EINVAL),
        ((eth_spec()[:20],), {}, EINVAL),
        ((spec(ETH, b"", b"", 6),), {}, EINVAL),
        ((tag_spec(1 << 24),), {}, EINVAL),
        ((eth_spec(),), {"kind": SNIFFER}, EINVAL),
        ((), {"kind": 4}, EINVAL),
        ((), {"port": 2}, EINVAL),
        ((), {"flags": 1}, EINVAL),
        ((), {"flags": EGRESS}, EOPNOTSUPP),
        ((), {"priority": 16}, ENOMEM),
    ],
)
def test_flows_that_are_refused(
    stations: list[Station], specs: tuple[bytes, ...], options: dict[str, int], error: int
) -> None:
    with pytest.raises(VerbsError) as caught:
        create_flow(stations[0].client, stations[0].qp, *specs, **options)
    assert caught.value.errno == error


def test_other_queue_pairs_have_no_flows(service: Service) -> None:
    one, _ = connected(service)
    with pytest.raises(VerbsError, match="takes no raw packets"):
        create_flow(one.client, one.qp)


def rss(client: Client, queues: list[QueuePair], fields: int) -> QueuePair:
    handles = array("I", [qp.handle for qp in queues]).tobytes().ljust(256, b"\0")
    words = (*array("Q", RSS_KEY), *array("Q", handles))
    handle, number = client.call("create_rss_qp", client.pd, 1, fields, len(queues), *words)
    return QueuePair(handle, number)


def work_queues(client: Client, cq: CompletionQueue, count: int) -> list[QueuePair]:
    queues = [client.create_qp(cq, kind=RAW) for _ in range(count)]
    for qp in queues:
        client.bring_up_raw(qp, states=2)
    return queues


@pytest.mark.parametrize("fields", [ADDRESSES | UDP_PORTS, ADDRESSES, UDP_PORTS, 0, TCP_PORTS])
def test_rss_spreads_flows_by_the_fields_that_it_hashes(
    stations: list[Station], fields: int
) -> None:
    sender, one, _ = stations
    queues = work_queues(one.client, one.cq, 4)
    qp = rss(one.client, queues, fields)
    create_flow(one.client, qp, eth_spec(GROUP))
    sources = range(1, 9)
    for number, queue in enumerate(queues):
        for each in range(len(sources)):
            wr_id = number * len(sources) + each
            one.client.receive(queue, one.memory.sge(SIZE * wr_id, SIZE), wr_id=wr_id)
    frames = [udp_frame(GROUP, 1000 + source, source) for source in sources]
    sender.post(*frames)
    numbers = {one.bytes_of(done): done.qp_num for done in one.cq.wait(len(sources))}
    for source in sources:
        ends = (address(source), address(2)) if fields & ADDRESSES else (b"", b"")
        ports = (40000, 1000 + source) if fields & UDP_PORTS else None
        expected = queues[rss_hash(*ends, ports) % 4]
        assert numbers[frames[source - 1]] == expected.number


def test_work_queues_of_rss_are_in_use(stations: list[Station]) -> None:
    client, cq = stations[0].client, stations[0].cq
    queues = work_queues(client, cq, 2)
    qp = rss(client, queues, ADDRESSES)
    with pytest.raises(VerbsError, match="in an indirection table") as caught:
        client.call("destroy_qp", queues[1].handle)
    assert caught.value.errno == EBUSY
    with pytest.raises(VerbsError, match="has no state"):
        client.modify(qp, 0x21, qp_state=1, port_num=1)
    client.call("destroy_qp", qp.handle)
    for queue in queues:
        client.call("destroy_qp", queue.handle)


@pytest.mark.parametrize(
    ("function", "fields", "count", "error"),
    [
        (2, ADDRESSES, 1, EOPNOTSUPP),
        (1, 1 << 31, 1, EOPNOTSUPP),
        (1, 0x5, 1, EINVAL),
        (1, 0x50, 1, EINVAL),
        (1, ADDRESSES, 0, EINVAL),
        (1, ADDRESSES, 65, EINVAL),
        (1, ADDRESSES, 1, EINVAL),
    ],
)
def test_rss_that_is_refused(
    stations: list[Station], function: int, fields: int, count: int, error: int
) -> None:
    """The last one has no work queue."""
    client = stations[0].client
    with pytest.raises(VerbsError) as caught:
        client.call("create_rss_qp", client.pd, function, fields, count, *[0] * 37)
    assert caught.value.errno == error


def test_other_queue_pairs_are_no_work_queues(tmp_path: Path) -> None:
    """A queue pair of RSS that another one used would be destroyed too late."""
    with running(tmp_path) as service:
        qps = service.server.devices[0].nic.device.qps
        before = dict(qps)
        one = station(service, 0)
        spread = rss(one.client, work_queues(one.client, one.cq, 1), ADDRESSES)
        for qp in (spread, one.client.create_qp(one.cq)):
            with pytest.raises(VerbsError, match="is no work queue") as caught:
                rss(one.client, [qp], ADDRESSES)
            assert caught.value.errno == EINVAL
        one.client.close()
        wait_until(lambda: qps == before)


def test_flows_of_a_device_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_calls, "_MAX_FLOWS", 3)
    with running(tmp_path) as service:
        one, other = station(service, 0), station(service, 0)
        flows = [one.flow(kind=kind) for kind in (SNIFFER, NORMAL, SNIFFER)]
        for each in (one, other):
            with pytest.raises(VerbsError, match="the maximum") as caught:
                each.flow(kind=SNIFFER)
            assert caught.value.errno == ENOMEM
        one.client.call("destroy_flow", flows[0])
        other.flow()
        for each in (one, other):
            each.client.close()


def test_bytes_without_an_ethernet_header_are_errors_of_the_sender(stations: list[Station]) -> None:
    one = stations[0]
    one.client.send(one.qp, one.memory.sge(0, 13), wr_id=1)
    one.client.send(one.qp, one.memory.sge(0, 60), wr_id=2)
    assert [(done.wr_id, done.status) for done in one.cq.wait(2)] == [
        (1, LOC_LEN_ERR),
        (2, FLUSHED),
    ]


def test_a_process_that_ends_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        qps = service.server.devices[0].nic.device.qps
        before = dict(qps)
        one = station(service, 0)
        one.flow(kind=SNIFFER)
        create_flow(one.client, rss(one.client, work_queues(one.client, one.cq, 2), ADDRESSES))
        one.client.close()
        wait_until(lambda: qps == before)


ADDRESSED = "-J 10.0.0.2 -j 10.0.0.1 -K 5000 -k 6000 -F -n 100"


@pytest.mark.skipif(which("raw_ethernet_lat") is None, reason="perftest is not installed")
@pytest.mark.parametrize(
    "options",
    [
        f"{ADDRESSED} --tcp",
        *(pytest.param(one, marks=pytest.mark.slow) for one in (ADDRESSED, "-F -n 100")),
    ],
)
def test_raw_ethernet_of_perftest(tmp_path: Path, options: str) -> None:
    with running(tmp_path) as service:
        server = start(service, "server", 1, options)
        wait_until(lambda: receives(service.server.devices[1]))
        client = start(service, "client", 0, options)
        for end in (client, server):
            output = end.communicate(timeout=HANG)[0]
            assert end.returncode == 0, output
            assert "t_typical" in output


def start(service: Service, end: str, index: int, options: str) -> "subprocess.Popen[str]":
    """Start one end of perftest on a device."""
    macs = "-B", MACS[index].hex(":"), "-E", MACS[1 - index].hex(":")
    return subprocess.Popen(
        ["raw_ethernet_lat", f"--{end}", "-d", f"rw{index}", *macs, *options.split()],
        env=environment(library(), service.path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def receives(device: EmulatedDevice) -> bool:
    """Whether a raw packet queue pair has flows and receives: frames are not lost."""
    raw = (qp for qp in tuple(device.nic.device.qps.values()) if qp.type == RAW)
    return any(qp.takes_packets and qp.rq and device.nic.has_flows(qp) for qp in raw)
