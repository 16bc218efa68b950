"""Memory of hosts, shared receive queues, datagrams, XRC, addresses: all played."""

import pytest

from rdmawire.traffic.scenario.model.connection import ReceivePlan
from rdmawire.traffic.scenario.model.host import SrqPlan
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import Fill, Span
from tests.traffic.scenario.scene import (
    CLIENT,
    COUNT,
    MARK,
    SERVER,
    SINK,
    SOURCE,
    connection,
    counts,
    event,
    exactly,
    expecting,
    failures,
    failures_of,
    fault,
    holds,
    host,
    link,
    memory,
    packets,
    scene,
    step,
    write,
)

INBOX = Span("server", "inbox")


def test_memory_that_is_not_registered_has_no_key() -> None:
    hosts = (
        host("client", memory("source", content=COUNT)),
        host("server", memory("sink", registered=False)),
    )
    assert failures(scene(write(status="REM_ACCESS_ERR"), hosts=hosts)) == []


def test_memory_on_demand_with_large_pages_and_fewer_rights() -> None:
    rights = ("LOCAL_WRITE", "REMOTE_READ")
    sink = memory("sink", 4 << 20, page=2 << 20, on_demand=True, access=rights)
    hosts = (host("client", memory("source", content=COUNT)), host("server", sink))
    steps = (
        step("read", local=(Span("client", "source", 0, 64),), remote=SINK, name="may"),
        write(status="REM_ACCESS_ERR", after=("may",)),
    )
    assert failures(scene(*steps, hosts=hosts)) == []


def test_a_shared_receive_queue_of_several_queue_pairs_has_a_limit_event() -> None:
    server = host(
        "server",
        memory("inbox", 4096),
        srqs=(SrqPlan(name="pool", mark=MARK, max_wr=8, limit=3),),
    )
    plan = connection(
        count=2,
        srq={"server": "pool"},
        receives=(ReceivePlan(at=SERVER, mark=MARK, into=(INBOX,), count=2),),
    )
    hosts = (host("client", memory("source", content=COUNT)), server)
    steps = (step("send", inline=b"hello"),)
    assert (
        failures(
            scene(*steps, hosts=hosts, connections=(plan,)),
            event("SRQLimitReached", exactly(1)),
            holds(Span("server", "inbox", 0, 5), fill=Fill.TEXT, data=b"hello"),
        )
        == []
    )


def test_a_small_shared_queue_is_filled_again_by_all_who_wait_for_room() -> None:
    server = host("server", memory("inbox"), srqs=(SrqPlan(name="pool", mark=MARK, max_wr=2),))
    hosts = (host("client", memory("source", content=COUNT)), server)
    plan = connection(count=2, srq={"server": "pool"}, attributes={"min_rnr_timer": 1})
    steps = (
        step("receive", SERVER, local=(INBOX,), times=4),
        step("send", inline=b"x", times=4),
    )
    assert failures(scene(*steps, hosts=hosts, connections=(plan,))) == []


def test_xrc_initiators_name_the_shared_queue() -> None:
    server = host(
        "server",
        memory("inbox", 4096),
        memory("sink"),
        srqs=(SrqPlan(name="pool", mark=MARK, max_wr=8, xrc=True),),
    )
    hosts = (host("client", memory("source", content=COUNT)), server)
    plan = connection(type="XRC", srq={"server": "pool"})
    steps = (
        step("receive", SERVER, local=(INBOX,), times=2),
        step("send", inline=b"extended", times=2),
        write(),
        step("send", SERVER, inline=b"no way", refused="EINVAL"),
    )
    assert (
        failures(
            scene(*steps, hosts=hosts, connections=(plan,)),
            holds(SINK, SOURCE),
            holds(Span("server", "inbox", 0, 8), fill=Fill.TEXT, data=b"extended"),
            packets(exactly(2), {"bth.opcode": 0xA4}),
        )
        == []
    )


def test_datagrams_find_their_way_and_come_behind_their_grh() -> None:
    hosts = (
        host("client", memory("source", content=COUNT)),
        host("server", memory("inbox", 4096)),
    )
    steps = (
        step("receive", SERVER, local=(INBOX,)),
        step("send_imm", local=(Span("client", "source", 0, 100),), values={"imm": 3}),
    )
    assert (
        failures(
            scene(*steps, hosts=hosts, connections=(connection(type="UD"),)),
            holds(Span("server", "inbox", 40, 100), Span("client", "source", 0, 100)),
        )
        == []
    )


def test_unreliable_connections_lose_and_say_nothing() -> None:
    lost = fault("drop", sent_by=CLIENT, packet=(4,))
    found = failures(
        scene(write(), links=(link(lost),), connections=(connection(type="UC"),)),
        counts("server.dropped_sequence", exactly(4)),
        counts("client.retransmits", exactly(0)),
        holds(Span("server", "sink", 3072), fill=Fill.ZEROS),
    )
    assert found == []


def test_addresses_are_those_of_the_plan_or_numbers() -> None:

    hosts = (
        host(
            "client", memory("source", content=COUNT), address="fd00::99", mac="02:00:00:00:00:99"
        ),
        host("server", memory("sink"), profile="rxe"),
    )
    outcome = play(expecting(scene(write(), hosts=hosts), holds(SINK, SOURCE)))
    assert failures_of(outcome) == []
    client, server = (outcome.testbed.machines[name].host for name in ("client", "server"))
    assert (client.mac.hex(), client.gid.hex()[-2:]) == ("020000000099", "99")
    assert server.gid.hex() == "fd00" + "0" * 27 + "2"
    assert server.nic.device.profile.name == "rxe"


@pytest.mark.parametrize("connect", ["at once", "cm"])
def test_queue_pairs_take_the_addresses_of_their_hosts_in_turn(connect: str) -> None:
    hosts = (
        host("client", memory("source", content=COUNT), further=("10.0.0.11", "10.0.0.21")),
        host("server", memory("sink"), further=("10.0.0.12",)),
    )
    between_: list[dict[str, object]] = [
        {"ip.src": bytes((10, 0, 0, one)), "ip.dst": bytes((10, 0, 0, other)), "bth.opcode": 6}
        for one, other in ((1, 2), (11, 12), (21, 2), (1, 12))
    ]
    plan = connection(count=4, connect=connect)
    assert (
        failures(
            scene(write(), hosts=hosts, connections=(plan,)),
            holds(SINK, SOURCE),
            *(packets(exactly(1), where) for where in between_),
            event("GIDChanged", exactly(0)),
        )
        == []
    )
