"""Events: one class for each thing that happens, and a reason for each that does not."""

from copy import deepcopy
from dataclasses import FrozenInstanceError, fields
from errno import EBUSY, EINVAL
from typing import get_args

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import CAP, Pair, connect
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.verbs.async_event import (
    ABSENT,
    AsyncChannel,
    AsyncEvent,
    CompletionEvent,
    CQError,
    Event,
    EventType,
    LastWQEReached,
    PortActive,
    PortError,
    QPFatal,
    SRQLimitReached,
)
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPState, QPType, WCStatus, WorkCompletion
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR

CLASSES = get_args(AsyncEvent)

# Which member of ibv_async_event's union each event fills, by the start of its name.
SUBJECTS = {"CQ": "cq", "SRQ": "srq", "PORT": "port", "PKEY": "port", "GID": "port"}


def test_each_type_of_event_has_one_class_or_a_reason_why_not() -> None:
    made = [event.TYPE for event in CLASSES]
    assert sorted([*made, *ABSENT]) == list(EventType)
    assert all(ABSENT.values())


@pytest.mark.parametrize("event", CLASSES, ids=lambda event: event.__name__)
def test_each_event_names_its_subject_by_number(event: type[CQError]) -> None:
    subject = SUBJECTS.get(event.TYPE.name.split("_")[0], "qp")
    assert [field.name for field in fields(event) if field.compare] == [subject]
    assert getattr(event(5), subject) == 5


@pytest.mark.parametrize("event", [*CLASSES, CompletionEvent], ids=lambda event: event.__name__)
def test_events_do_not_change(event: type[CQError]) -> None:
    one = event(1)
    assert one == event(1) != event(2)
    with pytest.raises(FrozenInstanceError):
        setattr(one, fields(one)[0].name, 2)


# Channels: each reader gets the events of its own objects.


def new_qp(host: Host, cq: CompletionQueue, channel: AsyncChannel | None) -> QueuePair:
    """A queue pair that reports to ``channel``."""
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP, async_channel=channel))


def overrun(qp: QueuePair) -> None:
    """Break the CQ of a queue pair by one completion too many."""
    for wr_id in range(qp.recv_cq.cqe + 1):
        qp.recv_cq.push(WorkCompletion(wr_id), 0)


def read(channel: AsyncChannel) -> list[Event]:
    return list(iter(channel.get_async_event, None))


def test_queue_pairs_and_cqs_report_to_the_channel_that_they_were_made_with() -> None:
    host = Host()
    first, second = host.nic.create_async_channel(), host.nic.create_async_channel()
    cq = host.nic.create_cq(1, async_channel=first)
    own, other = new_qp(host, cq, second), new_qp(host, cq, None)
    overrun(own)
    assert read(first) == [CQError(cq.number)]
    assert read(second) == [QPFatal(own.qp_num)]
    assert host.events() == [QPFatal(other.qp_num)]
    assert own.state is other.state is QPState.ERR
    assert read(first) == read(second) == host.events() == []


def test_a_shared_receive_queue_reports_to_its_channel() -> None:
    host = Host()
    channel = host.nic.create_async_channel()
    srq = host.nic.create_srq(host.pd, 4, async_channel=channel)
    srq.modify(limit=1)
    assert read(channel) == [SRQLimitReached(srq.number)]
    assert host.events() == []


def test_all_readers_get_the_events_of_the_port() -> None:
    host = Host()
    channels = [host.nic.create_async_channel() for _ in range(2)]
    host.nic.up = False
    host.nic.destroy_async_channel(channels[1])
    host.nic.up = True
    both: list[Event] = [PortError(1), PortActive(1)]
    assert [read(channel) for channel in channels] == [both, both[:1]]
    assert host.events() == both


def test_a_channel_in_use_is_not_destroyed_and_a_foreign_one_not_used() -> None:
    host, stranger = Host(1), Host(2)
    channel = host.nic.create_async_channel()
    cq = host.nic.create_cq(4, async_channel=channel)
    with pytest.raises(VerbsError, match="used by 1 object") as caught:
        host.nic.destroy_async_channel(channel)
    assert caught.value.errno == EBUSY
    host.nic.destroy_cq(cq)
    host.nic.destroy_async_channel(channel)
    theirs = stranger.nic.create_async_channel()
    plain = host.nic.create_cq(4)
    for call in (
        lambda: host.nic.create_cq(4, async_channel=theirs),
        lambda: host.nic.create_srq(host.pd, 4, async_channel=channel),
        lambda: new_qp(host, plain, theirs),
        lambda: host.nic.destroy_async_channel(theirs),
    ):
        with pytest.raises(VerbsError, match="is no channel of this adapter") as caught:
            call()
        assert caught.value.errno == EINVAL
    with pytest.raises(VerbsError, match="channel"):
        host.nic.create_cq(4, channel=theirs)  # type: ignore[arg-type]


def test_completion_events_go_to_the_channel_of_their_cq() -> None:
    host = Host()
    channel = host.nic.create_comp_channel()
    first, second = (host.nic.create_cq(4, channel) for _ in range(2))
    alone = host.nic.create_cq(4)
    for cq in (second, first, alone):
        cq.req_notify()
        cq.push(WorkCompletion(1), 0)
        cq.push(WorkCompletion(2), 0)
    assert repr(channel) == "<CompChannel: 2 events>"
    assert [channel.get_cq_event(), channel.get_cq_event()] == [second, first]
    assert channel.get_cq_event() is None
    assert host.events() == [CompletionEvent(alone.number)]


def test_events_of_a_destroyed_cq_are_discarded() -> None:
    host = Host()
    channel = host.nic.create_comp_channel()
    gone, kept = (host.nic.create_cq(4, channel) for _ in range(2))
    for cq in (gone, kept):
        cq.req_notify()
        cq.push(WorkCompletion(1), 0)
    host.nic.destroy_cq(gone)
    assert [channel.get_cq_event(), channel.get_cq_event()] == [kept, None]


def test_completions_are_in_their_cq_before_the_events() -> None:
    pair = Pair()
    client, server = pair.client, pair.server
    channel, events = server.nic.create_comp_channel(), server.nic.create_async_channel()
    cq = server.nic.create_cq(8, channel, events)
    srq = server.nic.create_srq(server.pd, 4, async_channel=events)
    init = QPInit(server.pd, cq, cq, CAP, srq, async_channel=events)
    ours = client.nic.create_qp(QPType.RC, QPInit(client.pd, client.cq, client.cq, CAP))
    theirs = server.nic.create_qp(QPType.RC, init)
    connect(client, ours, server, theirs)
    srq.post_recv(RecvWR((server.buffer(8).sge(),), 5))
    cq.req_notify()
    ours.post_send(SendWR(SendOpcode.SEND, (client.filled(b"x").sge(),)))
    pair.drive()
    assert channel.get_cq_event() is cq
    assert [done.wr_id for done in cq.poll(8)] == [5]
    theirs.post_send(SendWR(SendOpcode.SEND))
    go_to_error = QPAttributes(qp_state=QPState.ERR)
    theirs.modify(go_to_error, QPAttrMask.STATE)
    assert read(events) == [LastWQEReached(theirs.qp_num)]
    assert [done.status for done in cq.poll(8)] == [WCStatus.WR_FLUSH_ERR]
    copied, theirs_too, qp = deepcopy((server.nic, events, theirs))
    overrun(qp)
    assert read(theirs_too) == [CQError(cq.number), QPFatal(qp.qp_num)]
    assert read(events) == []
    assert copied.next_event() is None
