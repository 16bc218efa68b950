"""Whatever comes to queue pair 1: nothing is raised, nothing grows without bounds."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm.gsi import RECEIVES, SENDS
from rdmawire.ib.cm.messages import of
from rdmawire.ib.cm.receive import Ignored
from rdmawire.ib.cm.state_machine import Input
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import us
from rdmawire.wire.cm import APR, LAP, RTU, CMAttribute
from rdmawire.wire.mad import MAD, SIZE
from rdmawire.wire.management import ManagementClass
from tests.ib.cm.forge import PEER_ID, Forger, deaf
from tests.ib.cm.stage import SERVICE, UP, Side, Two, connected, message_in
from tests.ib.cm.test_state_machine import CALL, SAY, SCENES

CHOSEN, SEEDS = 20, 60
"""Seeds of the fast set, and all."""


class Recorder(Forger):
    """Keeps what it would say."""

    def __init__(self, side: Side, peer: Side) -> None:
        super().__init__(side, peer)
        self.said: list[bytes] = []

    def deliver(self, mad: bytes) -> None:
        self.said.append(mad)


def noise(random: Random, like: list[bytes]) -> Iterator[bytes]:
    """Messages that were said before with some bytes changed, and bytes of no meaning."""
    for _ in range(200):
        mad = bytearray(random.choice(like))
        for _ in range(random.choice((0, 1, 1, 2, 8))):
            mad[random.randrange(SIZE)] = random.choice((0, 1, 0xFF, random.randrange(256)))
        if random.random() < 0.5:
            mad[16:18] = random.choice(list(CMAttribute)).to_bytes(2, "big")
        yield bytes(mad)


def answer(random: Random, side: Side, start: int) -> None:
    """An owner who now and then does something about what it was told since."""
    for event in side.received[start:]:
        conn = side.manager.registry.get(event.id)
        if conn is None or random.random() < 0.3:
            continue
        call = random.choice(list(CALL.values()))
        with suppress(VerbsError):
            call(side, conn)


@pytest.mark.parametrize(
    "seed",
    [
        *range(CHOSEN),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(CHOSEN, SEEDS)),
    ],
)
def test_no_message_raises_and_all_ends_in_time(seed: int) -> None:
    random = Random(seed)
    state = random.choice(list(SCENES))
    two, side, forger, conn = SCENES[state]()
    recorder = Recorder(side, forger.peer)
    for say in SAY.values():
        say(recorder, conn)
    kept = len(side.received)
    for mad in noise(random, recorder.said):
        forger.deliver(mad)
        answer(random, side, kept)
        kept = len(side.received)
        if random.random() < 0.05:
            two.drive(random.randrange(10**9))
    for left in tuple(side.manager.registry):
        if not left.silent:
            side.manager.destroy(left.id, two.simulator.now)
    two.drive()
    assert side.is_clean()


@pytest.mark.parametrize("what", [Input.REJ, Input.REP, Input.DREQ])
def test_a_message_of_the_peers_about_another_connection_changes_nothing(what: Input) -> None:
    """Its own id is that of another: an old connection, whose number we gave out again."""
    two, _, _ = connected()
    conn = two.client.connection()
    before = len(two.client.received)
    SAY[what](Forger(two.client, two.server), conn)
    assert conn.peer_id != PEER_ID
    assert (conn.state, two.client.received[before:]) == (UP, [])
    assert two.client.manager.ignored == {Ignored.UNKNOWN: 1}


@pytest.mark.parametrize("length", [0, 1, 23, 24, 255, 257, 512, 4096])
def test_datagrams_of_another_length_are_none(length: int) -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    forger.deliver((forger.req_bytes() * 16)[:length])
    assert two.server.is_clean()
    assert two.server.received == []
    forger.req()
    assert two.server.names() == ["ConnectRequest"]


@pytest.mark.parametrize(
    "fields",
    [
        {"base_version": 2},
        {"mgmt_class": ManagementClass.SUBN_ADM},
        {"mgmt_class": 0xEE},
        {"method": 0x81},
        {"attribute_id": 0x99},
        {"attribute_id": CMAttribute.CLASS_PORT_INFO},
    ],
)
def test_other_management_is_not_for_here(fields: dict[str, int]) -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    mad = forger.req_bytes()
    head = MAD.parse(mad).replace(**fields)
    forger.deliver(head.build() + mad[MAD.SIZE :])
    assert two.server.manager.ignored == {Ignored.MALFORMED: 1}
    assert two.server.is_clean()


def test_alternate_paths_are_not_loaded() -> None:
    two, _, _ = connected()
    forger = Forger(two.server, two.client)
    forger.say(CMAttribute.LAP, LAP(1, two.server.connection().id))
    forger.say(CMAttribute.APR, APR(1, two.server.connection().id))
    assert two.server.manager.ignored == {Ignored.UNSUPPORTED: 2}


def test_other_versions_of_the_class_are_ignored() -> None:
    two, _, _ = connected()
    conn = two.server.connection()
    mad = of(CMAttribute.RTU, 1, RTU(conn.peer_id, conn.id))
    forger = Forger(two.server, two.client)
    forger.deliver(MAD.parse(mad).replace(class_version=1).build() + mad[MAD.SIZE :])
    assert two.server.manager.ignored == {Ignored.VERSION: 1}


def test_a_request_from_an_unknown_neighbour_is_ignored() -> None:
    two = deaf()
    stranger = two.bystander()
    del two.neighbours[stranger.gid]
    Forger(two.server, stranger).req()
    assert two.server.manager.ignored == {Ignored.NO_NEIGHBOUR: 1}
    assert two.server.is_clean()


def test_a_datagram_with_another_q_key_is_dropped() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    frame = bytearray(forger.frame(forger.req_bytes()))
    assert message_in(bytes(frame))
    two.server.nic.device.qps[1].qkey = 1
    two.server.receive(bytes(frame), 0)
    assert two.server.nic.drops[Drop.QKEY] == 1
    assert two.server.is_clean()


def test_a_flood_of_requests_fills_no_more_than_the_backlog() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    for number in range(3 * SENDS):
        forger.req(id=1 + number, qpn=1 + number)
    manager = two.server.manager
    assert len(manager.registry) == len(manager.pending[SERVICE, False]) == 16
    assert manager.gsi.lost == 3 * SENDS - 16 - SENDS
    assert len(two.server.nic.device.qps[1].rq) == RECEIVES


def test_the_same_request_many_times_is_one() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    for _ in range(500):
        forger.req()
    two.drive(us(1))
    assert two.server.names() == ["ConnectRequest"]
    assert two.messages().count("MRA") == 499


def test_what_a_manager_took_it_gives_back() -> None:
    two = Two()
    two.request()
    two.drive(us(10))
    nic = two.server.nic
    two.server.accept()
    two.server.manager.close()
    assert two.server.manager.next_timer() is None
    assert len(two.server.manager.registry) == 0
    assert 1 not in nic.device.qps
    assert len(nic.device.cqs) == 1
    assert len(nic.device.qps) == 1
