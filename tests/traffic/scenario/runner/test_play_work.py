"""Every verb of a scenario, played: what it does to memory, and how it ends."""

from typing import Any

import pytest

from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.connection import ReceivePlan
from rdmawire.traffic.scenario.model.host import WindowPlan
from rdmawire.traffic.scenario.model.step import VERBS, StepPlan
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import Content, Fill, Span
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
    holds,
    host,
    memory,
    packets,
    scene,
    state,
    step,
    write,
)

EIGHT = Span("client", "source", 0, 8)
ATOMIC = Span("server", "sink", 64, 8)
INBOX = Span("server", "inbox")


def receive(**more: Any) -> StepPlan:
    return step("receive", SERVER, **more)


def with_inbox(*steps: StepPlan, **more: Any) -> Scenario:
    hosts = (
        host("client", memory("source", content=COUNT)),
        host("server", memory("sink"), memory("inbox", 4096)),
    )
    return scene(*steps, **{"hosts": hosts, **more})


def test_send_comes_to_a_receive() -> None:
    steps = (
        receive(local=(INBOX,), name="r"),
        step("send", inline=b"hello"),
        step("send", name="none", local=()),
        receive(),
    )
    assert (
        failures(
            with_inbox(*steps),
            holds(Span("server", "inbox", 0, 5), fill=Fill.TEXT, data=b"hello"),
            counts("client.messages", exactly(2)),
        )
        == []
    )


@pytest.mark.parametrize("verb", ["send_imm", "write_imm"])
def test_an_immediate_is_on_the_wire(verb: str) -> None:
    remote = SINK if verb == "write_imm" else None
    work = step(verb, local=(Span("client", "source", 0, 100),), remote=remote, values={"imm": 7})
    steps = (receive(local=(INBOX,)), work)
    found = Span("server", "sink" if remote else "inbox", 0, 100)
    assert (
        failures(
            with_inbox(*steps),
            holds(found, fill=Fill.COUNT),
            packets(exactly(1), {"immdt.immdt": 7}),
        )
        == []
    )


def test_read_comes_into_local_memory() -> None:
    into = Span("client", "source", 4096, 4096)
    hosts = (
        host("client", memory("source")),
        host("server", memory("sink", content=COUNT)),
    )
    steps = (step("read", local=(into,), remote=Span("server", "sink", 256)),)
    assert (
        failures(
            scene(*steps, hosts=hosts),
            holds(into, Span("server", "sink", 256, 4096)),
            holds(Span("client", "source", 0, 4096), fill=Fill.ZEROS),
        )
        == []
    )


def test_several_pieces_of_memory_are_one_message() -> None:
    pieces = (Span("client", "source", 8, 2), Span("client", "source", 100, 2))
    steps = (step("write", local=pieces, remote=SINK),)
    wanted = Content(fill=Fill.HEX, data=bytes((8, 9, 100, 101))).data
    span = Span("server", "sink", 0, 4)
    assert failures(scene(*steps), holds(span, fill=Fill.HEX, data=wanted)) == []


def test_atomics_change_eight_bytes_and_give_what_was_there() -> None:
    steps = (
        step("fetch_add", local=(EIGHT,), remote=ATOMIC, values={"add": 5}, times=3),
        step("compare_swap", local=(EIGHT,), remote=ATOMIC, values={"compare": 15, "swap": 9}),
    )
    assert (
        failures(
            scene(*steps),
            holds(ATOMIC, fill=Fill.HEX, data=(9).to_bytes(8, "little")),
            holds(EIGHT, fill=Fill.HEX, data=(15).to_bytes(8, "little")),
        )
        == []
    )


def test_atomic_write_and_flush() -> None:
    steps = (
        step("atomic_write", local=(Span("client", "source", 8, 8),), remote=ATOMIC),
        step("flush", remote=ATOMIC, values={"placement": "PERSISTENCE"}),
        step("flush", remote=SINK, values={"selectivity": "MEMORY_REGION"}),
    )
    assert (
        failures(
            scene(*steps),
            holds(ATOMIC, Span("client", "source", 8, 8)),
            packets(exactly(1), {"feth.plt": 2, "reth.dmalen": 8}),
            packets(exactly(1), {"feth.sel": 1, "feth.plt": 1, "reth.dmalen": 8192}),
        )
        == []
    )


def test_a_window_is_bound_written_through_and_invalidated_by_the_peer() -> None:
    window = Span("server", "window")
    hosts = (
        host("client", memory("source", content=COUNT)),
        host("server", memory("sink"), windows=(WindowPlan(name="window", mark=MARK),)),
    )
    part = Span("client", "source", 0, 100)
    opened = Span("server", "sink", 4096, 100)
    steps = (
        step("bind_mw", SERVER, name="bound", values={"what": window, "to": opened}),
        step("write", local=(part,), remote=window, after=("bound",), name="written"),
        receive(name="got"),
        step("send_inv", values={"key": window}, after=("written",), name="back"),
        step("write", local=(part,), remote=window, after=("back",), status="REM_ACCESS_ERR"),
    )
    assert failures(scene(*steps, hosts=hosts), holds(opened, part)) == []


def test_memory_for_fast_registration_has_a_key_for_a_while() -> None:
    hosts = (
        host("client", memory("source", content=COUNT)),
        host("server", memory("sink", fast=True)),
    )
    what = {"what": SINK}
    steps = (
        step("reg_mr", SERVER, name="there", values=what),
        write(after=("there",), name="first"),
        step("local_inv", SERVER, values=what, after=("first",), name="gone"),
        step("reg_mr", SERVER, values=what, after=("gone",), name="again"),
        write(after=("again",), name="second"),
        step("local_inv", SERVER, values=what, after=("second",), name="over"),
        write(after=("over",), status="REM_ACCESS_ERR"),
    )
    assert failures(scene(*steps, hosts=hosts), holds(SINK, SOURCE)) == []


def test_owners_register_and_deregister() -> None:
    what = {"what": SINK}
    steps = (
        write(name="first"),
        step("deregister", None, values=what, after=("first",), name="gone"),
        step("deregister", None, values=what, after=("gone",), refused="EINVAL"),
        step("register", None, values={**what, "access": ("LOCAL_WRITE",)}, after=("gone",)),
        step("fill", None, values={**what, "content": Content()}),
        write(status="REM_ACCESS_ERR"),
    )
    assert (
        failures(
            scene(*steps),
            holds(SINK, fill=Fill.ZEROS),
            event("AccessViolation", exactly(1)),
            state(CLIENT, "ERR"),
            state(SERVER, "ERR"),
        )
        == []
    )


def test_modify_takes_queue_pairs_through_states() -> None:
    steps = (
        step("modify", values={"state": "SQD"}),
        write(name="waits"),
        step("modify", values={"state": "RTS"}, at=5_000),
        step("modify", values={"state": "ERR"}, after=("waits",)),
        step("modify", values={"state": "RTS"}, refused="EINVAL"),
        step("modify", values={"state": "RESET"}),
        step("modify", values={"state": "INIT"}),
        step("modify", values={"state": "RTR"}),
        step("modify", values={"state": "RTS", "attributes": {"timeout": 3}}),
    )
    outcome = play(expecting(scene(*steps), state(CLIENT, "RTS"), holds(SINK, SOURCE)))
    assert failures_of(outcome) == []
    (qp,) = (endpoint.qp for endpoint in outcome.testbed.endpoints["a"])
    assert qp.attributes.timeout == 3


def test_a_connection_goes_over_to_its_alternate_path() -> None:
    steps = (
        write(name="first"),
        step("migrate", after=("first",)),
        write(name="second"),
    )
    plan = connection(alternate=True)
    assert (
        failures(
            scene(*steps, connections=(plan,)),
            event("PathMigrated", exactly(1), of="client"),
            event("PathMigrated", exactly(1)),
            packets(exactly(8), {"bth.migreq": 1, "eth.src": b"\x02\0\0\0\0\1"}),
        )
        == []
    )


def test_receives_of_a_connection_are_posted_before_all_work() -> None:
    receives = (ReceivePlan(at=SERVER, mark=MARK, into=(INBOX,), count=3),)
    steps = (step("send", inline=b"hello", times=3),)
    found = failures(
        with_inbox(*steps, connections=(connection(receives=receives),)),
        counts("server.rnr_naks", exactly(0)),
        holds(Span("server", "inbox", 0, 5), fill=Fill.TEXT, data=b"hello"),
    )
    assert found == []


def test_work_without_completion_is_over_when_it_is_posted() -> None:
    silent = write(flags=(), status=None, times=3000)
    outcome = play(scene(silent.model_copy(update={"local": (EIGHT,)})))
    assert failures_of(outcome) == []
    (run,) = outcome.steps
    assert (run.posted, run.endings) == (3000, {})
    assert outcome.summary.messages == 3000


def test_unsignaled_work_that_fails_is_reported() -> None:
    bad = step("write", flags=(), status=None, local=(SOURCE,), remote=Span("server", "sink", 8))
    assert failures(scene(bad)) == [
        "write on client/a: expected no completion, found REM_ACCESS_ERR (frame 9)"
    ]


def test_every_verb_is_played_here() -> None:
    played = {
        "write write_imm send send_imm send_inv read compare_swap fetch_add atomic_write flush",
        "bind_mw reg_mr local_inv receive register deregister fill modify migrate",
        "free disconnect",  # in test_play_hosts
        "inject",  # in test_play_packets
        "allreduce allgather reducescatter broadcast reduce",  # in test_play_collectives
        "alltoall sendrecv",
    }
    assert {verb for line in played for verb in line.split()} == set(VERBS)
