"""GPUs, shared receive queues, datagrams, XRC, connection managers, switches: all played."""

from typing import Any

import pytest

from rdmawire.traffic.scenario.model import (
    End,
    Fill,
    GpuPlan,
    HostPlan,
    QueuePlan,
    ReceivePlan,
    Scenario,
    Span,
    SrqPlan,
    SwitchPlan,
)
from rdmawire.traffic.scenario.play import play
from tests.traffic.scenario.scene import (
    CLIENT,
    COUNT,
    MARK,
    SERVER,
    SINK,
    SOURCE,
    between,
    connection,
    counts,
    event,
    exactly,
    expecting,
    failures,
    fault,
    holds,
    host,
    lasts,
    link,
    memory,
    packets,
    scene,
    state,
    step,
    told,
    write,
)

INBOX = Span("server", "inbox")


def with_gpu(name: str, *memories: Any, model: str = "H200", bar1: int | None = None) -> HostPlan:
    return host(name, *memories, gpus=(GpuPlan(name="gpu0", mark=MARK, model=model, bar1=bar1),))


def gpu_pair(via: str, **more: Any) -> tuple[HostPlan, HostPlan]:
    return (
        with_gpu("client", memory("source", content=COUNT, gpu="gpu0", via=via)),
        with_gpu("server", memory("sink", gpu="gpu0", via=via, **more)),
    )


@pytest.mark.parametrize(
    ("via", "path", "copies"),
    [
        ("peermem", "gpu_direct", 0),
        ("peermem-legacy", "gpu_direct", 0),
        ("dmabuf", "gpu_direct", 0),
        ("bounce", "bounce", 8),
    ],
)
def test_gpu_to_gpu_by_every_way(via: str, path: str, copies: int) -> None:
    outcome = play(
        expecting(
            scene(write(), hosts=gpu_pair(via)),
            holds(SINK, SOURCE),
            counts(f"client.{path}_octets", exactly(8192)),
            counts(f"server.{path}_octets", exactly(8192)),
            counts(f"server.{path}_copies", exactly(copies)),
            counts("server.host_octets", exactly(0)),
        )
    )
    assert told(outcome) == []
    assert set(outcome.summary.paths) == {path}


def test_kernels_see_what_was_posted_once_all_is_over() -> None:
    hosts = (
        host("client", memory("source", content=COUNT)),
        with_gpu("server", memory("sink", gpu="gpu0"), model="T4"),
    )
    assert failures(scene(write(), hosts=hosts), holds(SINK, SOURCE)) == []


def test_a_registration_meets_its_refusal_or_fails() -> None:
    def found(size: int, refused: str | None) -> list[str]:
        huge = memory("huge", size, gpu="gpu0", refused=refused)
        return failures(scene(hosts=(with_gpu("client", huge, bar1=64 << 20), host("server"))))

    assert found(128 << 20, "EFAULT") == []
    assert found(1 << 20, None) == []
    (text,) = found(128 << 20, None)
    assert text.startswith(
        "registration of client.huge: expected no refusal, found EFAULT (Bad address: unmapped"
    )
    assert found(128 << 20, "ENOMEM") == [text.replace("no refusal", "ENOMEM")]
    assert found(1 << 20, "EFAULT") == [
        "registration of client.huge: expected EFAULT, found no refusal"
    ]


@pytest.mark.parametrize(
    ("via", "status"), [("peermem", "SUCCESS"), ("peermem-legacy", "REM_ACCESS_ERR")]
)
def test_what_the_owner_frees_goes_on_or_not(via: str, status: str) -> None:
    steps = (step("free", None, values={"what": SINK}), write(status=status, at=1_000))
    assert failures(scene(*steps, hosts=gpu_pair(via))) == []
    freed_twice = (steps[0], step("free", None, values={"what": SINK}, refused="EINVAL"))
    assert failures(scene(*freed_twice, hosts=gpu_pair(via))) == []
    assert failures(scene(steps[0], hosts=gpu_pair(via)), holds(SINK, fill=Fill.ZEROS)) == [
        (
            "memory server.sink: expected zeros, found no memory: "
            "illegal GPU address: 8192 octets at 0x700000000000"
        )
    ]


def test_host_memory_is_not_freed_as_a_gpus() -> None:
    steps = (step("free", None, values={"what": SINK}),)
    assert failures(scene(*steps)) == [
        "free: expected no refusal, found EINVAL (server.sink is no GPU's)"
    ]


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


def test_one_shared_queue_for_several_queue_pairs_tells_when_it_runs_low() -> None:
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
            holds(Span("server", "inbox", 0, 5), fill=Fill.TEXT, octets=b"hello"),
        )
        == []
    )


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
            holds(Span("server", "inbox", 0, 8), fill=Fill.TEXT, octets=b"extended"),
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


def managed(*steps: Any, kind: str = "RC", **more: Any) -> Scenario:
    hosts = (
        host("client", memory("source", content=COUNT)),
        host("server", memory("sink"), memory("inbox", 4096)),
    )
    plan = connection(
        type=kind,
        connect="cm",
        psn=(0xFFFFFE, 7),
        attributes={"min_rnr_timer": 3},
        receives=(ReceivePlan(at=SERVER, mark=MARK, into=(INBOX,)),),
        **more,
    )
    return scene(*steps, hosts=hosts, connections=(plan,))


def test_a_manager_connects_with_the_psns_of_the_plan_and_ends_it() -> None:
    steps = (
        step("send", inline=b"hello", name="hello"),
        write(name="written"),
        write(end=End("client", "a"), name="again", after=("written",)),
        step("disconnect", after=("hello", "written", "again")),
    )
    outcome = play(
        expecting(
            managed(*steps),
            holds(SINK, SOURCE),
            holds(Span("server", "inbox", 0, 5), fill=Fill.TEXT, octets=b"hello"),
            packets(exactly(1), {"bth.opcode": 4, "bth.psn": 0xFFFFFE}, sent_by="client"),
            packets(exactly(5), {"bth.destqp": 1}),
            state(CLIENT, "ERR"),
            state(SERVER, "ERR"),
            event("ConnectRequest", exactly(1)),
            event("Disconnected", exactly(1)),
            event("Disconnected", exactly(1), of="client"),
        )
    )
    assert told(outcome) == []
    (lane,) = outcome.stage.lanes["a"]
    assert lane.peer.qp.min_rnr_timer == lane.qp.min_rnr_timer == 3


@pytest.mark.parametrize("kind", ["UC", "UD"])
def test_managers_connect_other_types_too(kind: str) -> None:
    steps = (step("send", inline=b"hello"),)
    offset = 40 if kind == "UD" else 0
    assert (
        failures(
            managed(*steps, kind=kind, count=1),
            holds(Span("server", "inbox", offset, 5), fill=Fill.TEXT, octets=b"hello"),
        )
        == []
    )


def test_several_queue_pairs_are_connected_one_by_one() -> None:
    assert (
        failures(managed(write(), count=3), counts("client.octets", exactly(3 * 8192 + 6 * 256)))
        == []
    )


def test_a_connection_that_is_never_made_is_said_to_be_so() -> None:
    lost = fault("drop", where={"bth.destqp": 1}, chance=1.0)
    found = managed(write())
    lonely = Scenario(
        **{
            name: getattr(found, name)
            for name in ("name", "source", "hosts", "connections", "steps")
        },
        links=(link(lost),),
        time_limit=10**12,
    )
    assert failures(lonely) == [
        "write on client/a: expected SUCCESS, found no completion: no connection: Unreachable"
    ]


def test_who_was_not_connected_by_a_manager_is_not_disconnected_by_one() -> None:
    assert failures(scene(step("disconnect"))) == [
        (
            "disconnect on client/a: expected no refusal, "
            "found EINVAL (client/a was not connected by a manager)"
        )
    ]


LOSSY = QueuePlan(priority=3, mark=MARK, dscp=(26,), kmin=4096, kmax=16384, pmax=0.5)


def congested(**more: Any) -> Scenario:
    """Two hosts send through one switch to a third, whose link is slower."""
    hosts = tuple(host(name, memory("source", 1 << 16, content=COUNT)) for name in ("one", "two"))
    to_both = host("sink", memory("one", 1 << 16), memory("two", 1 << 16))
    links = tuple(link(ends=(name, "leaf"), rate=100 * 10**9) for name in ("one", "two"))
    ecn = {"dscp": 26, "ecn": True, "mtu": 1024, **more}
    return scene(
        *(
            step(
                "write",
                End(name, name),
                local=(Span(name, "source"),),
                remote=Span("sink", name),
                times=4,
            )
            for name in ("one", "two")
        ),
        hosts=(*hosts, to_both),
        switches=(SwitchPlan(name="leaf", mark=MARK, queues=(LOSSY,)),),
        links=(*links, link(ends=("leaf", "sink"), rate=25 * 10**9)),
        connections=tuple(connection(name, ends=(name, "sink"), **ecn) for name in ("one", "two")),
    )


def test_a_switch_marks_and_senders_slow_down() -> None:
    found = failures(
        congested(congestion="dcqcn", cnp_interval=10_000, parameters={"g": 0.25}),
        holds(Span("sink", "one"), Span("one", "source")),
        holds(Span("sink", "two"), Span("two", "source")),
        counts("leaf:sink.marks", between(1)),
        counts("leaf:sink.marks_3", between(1)),
        counts("leaf:sink.marks_0", exactly(0)),
        counts("leaf:sink.drops", exactly(0)),
        counts("leaf.stranded", exactly(0)),
        counts("leaf.peak", between(4096)),
        counts("sink.cnps", between(1)),
        packets(between(1), {"bth.opcode": 0x81}, link="one-leaf"),
    )
    assert found == []


def test_timely_and_no_control_at_all_are_played() -> None:
    assert failures(congested(congestion="timely"), counts("sink.cnps", exactly(0))) == []
    assert failures(congested(cnp_interval=1_000), counts("sink.cnps", between(1))) == []


def test_a_frame_beyond_the_capture_is_told_by_its_link() -> None:
    found = failures(
        congested(),
        packets(exactly(0), {"bth.opcode": 0x0A}, link="leaf-sink"),
        packets(exactly(0), {"bth.opcode": 0x06}, link="leaf-sink", sent_by="two"),
        lasts(between(0, 10)),
    )
    assert found[0].startswith(
        "packets sent by two on leaf-sink with bth.opcode 6: expected 0, found 4"
    )
    assert found[0].endswith("of leaf-sink)")
    assert found[1].startswith("time: expected 10 at most ns, found ")


def test_addresses_are_those_of_the_plan_or_numbers() -> None:

    hosts = (
        host(
            "client", memory("source", content=COUNT), address="fd00::99", mac="02:00:00:00:00:99"
        ),
        host("server", memory("sink"), profile="rxe"),
    )
    outcome = play(expecting(scene(write(), hosts=hosts), holds(SINK, SOURCE)))
    assert told(outcome) == []
    client, server = (outcome.stage.machines[name].host for name in ("client", "server"))
    assert (client.mac.hex(), client.gid.hex()[-2:]) == ("020000000099", "99")
    assert server.gid.hex() == "fd00" + "0" * 27 + "2"
    assert server.nic.device.profile.name == "rxe"


def test_memory_that_a_gpu_has_no_room_for_is_a_failure() -> None:
    vast = memory("vast", 1 << 40, gpu="gpu0")
    assert failures(scene(hosts=(with_gpu("client", vast), host("server")))) == [
        (
            "memory client.vast: expected to be there, "
            "found ENOMEM (no 1099511627776 octets of GPU memory left)"
        )
    ]


def test_a_small_shared_queue_is_filled_again_by_all_who_wait_for_room() -> None:
    server = host("server", memory("inbox"), srqs=(SrqPlan(name="pool", mark=MARK, max_wr=2),))
    hosts = (host("client", memory("source", content=COUNT)), server)
    plan = connection(count=2, srq={"server": "pool"}, attributes={"min_rnr_timer": 1})
    steps = (
        step("receive", SERVER, local=(INBOX,), times=4),
        step("send", inline=b"x", times=4),
    )
    assert failures(scene(*steps, hosts=hosts, connections=(plan,))) == []


def test_who_breaks_the_queue_pair_meanwhile_is_not_connected() -> None:
    def found(at: int, end: End) -> list[str]:
        breaks = step("modify", end, values={"state": "ERR"}, at=at)
        return failures(managed(breaks, write()))

    text = "write on client/a: expected SUCCESS, found no completion: no connection: "
    assert found(0, SERVER) == [f"{text}Rejected (CONSUMER_REJECT)"]
    (error,) = found(1_500, CLIENT)
    assert error.startswith(f"{text}ConnectError (QP 0x11 is in ERR")


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
