"""Connections that managers make: who agrees to them, what goes wrong, what many of them cost."""

import sys
from types import FrameType
from typing import Any

import pytest

from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.cm import manager
from rdmawire.memory.key import Access
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.connection import ReceivePlan
from rdmawire.traffic.scenario.runner import endpoint as connect
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import End, Fill, Span
from rdmawire.wire.cm import RejectReason
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
    state,
    step,
    write,
)

INBOX = Span("server", "inbox")


def managed(*steps: Any, kind: str = "RC", attributes: Any = None, **more: Any) -> Scenario:
    hosts = (
        host("client", memory("source", content=COUNT)),
        host("server", memory("sink"), memory("inbox", 4096)),
    )
    plan = connection(
        type=kind,
        connect="cm",
        psn=(0xFFFFFE, 7),
        attributes=attributes or {"min_rnr_timer": 3},
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
            holds(Span("server", "inbox", 0, 5), fill=Fill.TEXT, data=b"hello"),
            packets(exactly(1), {"bth.opcode": 4, "bth.psn": 0xFFFFFE}, sent_by="client"),
            packets(exactly(5), {"bth.destqp": 1}),
            state(CLIENT, "ERR"),
            state(SERVER, "ERR"),
            event("ConnectRequest", exactly(1)),
            event("Disconnected", exactly(1)),
            event("Disconnected", exactly(1), of="client"),
        )
    )
    assert failures_of(outcome) == []
    (endpoint,) = outcome.testbed.endpoints["a"]
    assert endpoint.peer.qp.min_rnr_timer == endpoint.qp.min_rnr_timer == 3


def test_the_summary_counts_messages_of_applications_and_those_of_managers_apart() -> None:
    """What is flushed when a connection ends has not failed."""
    steps = (step("send", inline=b"hello", name="w"), step("disconnect", after=("w",)))
    two = ReceivePlan(at=SERVER, mark=MARK, into=(INBOX,), count=2)
    first_lost = link(fault("drop", where={"mad.attribute_id": (0x10,)}, nth=(1,)))
    scenario = managed(*steps)
    plan = scenario.connections[0].model_copy(update={"receives": (two,)})
    for links, repeats in ((scenario.links, 0), ((first_lost,), 1)):
        outcome = play(scenario.model_copy(update={"connections": (plan,), "links": links}))
        summary = outcome.summary
        assert (summary.messages, summary.bytes, summary.failed) == (1, 5, 0)
        assert summary.mads == 5 + repeats
        assert outcome.counters["client.mads"] + outcome.counters["server.mads"] == summary.mads


@pytest.mark.parametrize("kind", ["UC", "UD"])
def test_managers_connect_other_types_too(kind: str) -> None:
    steps = (step("send", inline=b"hello"),)
    offset = 40 if kind == "UD" else 0
    assert (
        failures(
            managed(*steps, kind=kind, count=1),
            holds(Span("server", "inbox", offset, 5), fill=Fill.TEXT, data=b"hello"),
        )
        == []
    )


@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_managed_queue_pairs_have_the_attributes_of_the_plan(kind: str) -> None:
    access = Access.REMOTE_WRITE.value
    of_end = {"server": {"timeout": 7, "qp_access_flags": access}}
    outcome = play(managed(kind=kind, attributes={"timeout": 5, "min_rnr_timer": 3}, of_end=of_end))
    (endpoint,) = outcome.testbed.endpoints["a"]
    ends = [end.qp.attributes for end in (endpoint, endpoint.peer)]
    assert ends[1].qp_access_flags == access != ends[0].qp_access_flags
    if kind == "RC":
        assert [end.timeout for end in ends] == [5, 7]


def test_the_default_timeout_is_that_of_the_manager() -> None:
    (endpoint,) = play(managed()).testbed.endpoints["a"]
    assert (
        endpoint.qp.attributes.timeout == endpoint.peer.qp.attributes.timeout != ATTRIBUTES.timeout
    )


def test_several_queue_pairs_are_connected_one_by_one() -> None:
    assert failures(managed(write(), count=3), counts("client.bytes", exactly(3 * 8192))) == []


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


def test_who_breaks_the_queue_pair_meanwhile_is_not_connected() -> None:
    def found(at: int, end: End) -> list[str]:
        breaks = step("modify", end, values={"state": "ERR"}, at=at)
        return failures(managed(breaks, write()))

    text = "write on client/a: expected SUCCESS, found no completion: no connection: "
    assert found(0, SERVER) == [f"{text}Rejected (CONSUMER_REJECT)"]
    (error,) = found(1_500, CLIENT)
    assert error.startswith(f"{text}ConnectError (QP 0x11 is in ERR")


@pytest.mark.parametrize("reason", ["CONSUMER_REJECT", "NO_RESOURCES"])
@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_a_server_refuses_for_a_reason(reason: str, kind: str) -> None:
    found = failures(
        managed(kind=kind, reject=reason, count=3),
        event("ConnectRequest", exactly(3)),
        event("Rejected", exactly(3), of="client"),
        event(f"Rejected.{reason}", exactly(3), of="client"),
        event("Rejected.NO_QP", exactly(0), of="client"),
        packets(exactly(3), {"cm_rej.reason": RejectReason[reason]}, sent_by="server"),
        state(CLIENT, "INIT"),
    )
    assert found == []


def test_work_on_what_was_refused_is_refused_or_never_done() -> None:
    def found(*steps: Any) -> list[str]:
        return failures(managed(*steps, reject="CONSUMER_REJECT"))

    refused = write(refused="EINVAL", status=None, times=3)
    assert found(refused) == []
    assert found(write(refused="EINVAL", status=None, at=100_000)) == []
    none = "expected SUCCESS, found no completion: no connection:"
    assert found(refused, write()) == [f"write on client/a: {none} Rejected (CONSUMER_REJECT)"]
    assert found(step("receive", SERVER)) == [
        f"receive on server/a: {none} refused (CONSUMER_REJECT)"
    ]
    assert found(step("receive", SERVER, status=None, at=100_000)) == []


def test_who_was_not_connected_by_a_manager_is_not_disconnected_by_one() -> None:
    assert failures(scene(step("disconnect"))) == [
        (
            "disconnect on client/a: expected no refusal, "
            "found EINVAL (client/a was not connected by a manager)"
        )
    ]


class Walked:
    """Counts the lines that the modules of connection managers and of introductions execute."""

    def __init__(self) -> None:
        self.lines = 0
        self._folder = manager.__file__.rpartition("/")[0]
        self._file = connect.__file__

    def __call__(self, frame: FrameType, what: str, _: object) -> "Walked | None":
        file = frame.f_code.co_filename
        if file != self._file and not file.startswith(self._folder):
            return None
        self.lines += what == "line"
        return self


def lines_walked(scenario: Scenario) -> int:
    walked, before = Walked(), sys.gettrace()
    sys.settrace(walked)
    try:
        assert failures(scenario) == []
    finally:
        sys.settrace(before)
    return walked.lines


@pytest.mark.parametrize(("kind", "count"), [("RC", 64), ("UD", 128)])
def test_each_of_many_connections_costs_no_more_than_each_of_few(kind: str, count: int) -> None:
    hello = step("send", inline=b"hello")
    few, many = (lines_walked(managed(hello, kind=kind, count=number)) for number in (8, count))
    assert many / count <= few / 8
