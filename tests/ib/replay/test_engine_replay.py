"""Real conversations with our NIC in the place of one end: it sends what Linux's soft-RoCE sent."""

from collections.abc import Iterable

from rdmawire.errors import WireError
from rdmawire.verbs.enums import QPType, WCStatus, WorkCompletion
from rdmawire.wire import roce
from tests.ib.replay import capture
from tests.ib.replay.cases import ANSWERERS, ENDS, RECEIVERS, SENDERS, WRITTEN_TO, cases
from tests.ib.replay.conversation import Side
from tests.ib.replay.end import MOST, Line, Posted
from tests.ib.replay.exceptions import SPURIOUS, with_identification
from tests.ib.replay.facts import RECEIVED, SENT
from tests.ib.replay.player import Compared, Replay
from tests.ib.replay.posted import OF_RECEIVES, Message

FRAMES = 1024
"""RoCEv2 frames in all captures together, but those to the management queue pair."""
TICK = 4_000_000
"""Nanoseconds of a tick of the captured kernels, by which their timers count."""
GRH_BYTES = 40


@cases(SENDERS)
def test_requests_are_those_of_linux_byte_for_byte(end: Side) -> None:
    compared = [one for one in Replay(end).run().compared if not one.captured.shape.response]
    assert compared
    assert not differing(compared)


@cases(ANSWERERS)
def test_responses_are_those_of_linux_byte_for_byte(end: Side) -> None:
    compared = [one for one in Replay(end).run().compared if one.captured.shape.response]
    assert compared
    assert not differing(compared)


@cases(ENDS)
def test_lengths_checksums_and_icrc_are_right_as_they_were_sent(end: Side) -> None:
    for one in Replay(end).run().compared:
        assert one.ours is not None
        assert is_sealed(one.ours)


@cases(ENDS)
def test_nothing_else_is_sent(end: Side) -> None:
    assert not Replay(end).run().left_over()


@cases(SENDERS)
def test_send_work_completes_in_order_as_it_did_in_the_program(end: Side) -> None:
    replay = Replay(end).run()
    if end.capture.name == "rxe61_retry_exceeded":
        replay.give_up()
        assert not replay.left_over()
    for line in replay.end.lines.values():
        done = line.send_cq.poll(MOST)
        expected = SENT.get(end.capture.name) or (WCStatus.SUCCESS,) * len(line.outgoing)
        assert [one.wr_id for one in done] == [*range(len(expected))]
        assert tuple(one.status for one in done) == expected
        for one in done:
            check_result(replay, line, line.posted[one.wr_id], one)


def check_result(replay: Replay, line: Line, posted: Posted, done: WorkCompletion) -> None:
    """READs and atomics bring what the peer's answers carried."""
    message, buffer = posted
    if done.status is not WCStatus.SUCCESS:
        return
    found = replay.end.space.read(buffer.address, buffer.length)
    if message.is_read:
        assert found == line.answers_to_us.read(message)
    elif message.is_atomic:
        assert int.from_bytes(found, "little") == line.answers_to_us.originals[message.psn]


@cases(RECEIVERS)
def test_messages_complete_receives_as_they_did_in_the_program(end: Side) -> None:
    replay = Replay(end).run()
    for line in replay.end.lines.values():
        done = line.recv_cq.poll(MOST)
        ended = [one for one in done if one.status is not WCStatus.WR_FLUSH_ERR]
        messages = [one for one in line.delivered() if one.opcode in OF_RECEIVES]
        expected = RECEIVED.get(end.capture.name, (WCStatus.SUCCESS,) * len(messages))
        assert tuple(one.status for one in ended) == expected
        for message, one in zip(messages, ended, strict=False):
            check_receipt(replay, line, message, one)


def check_receipt(replay: Replay, line: Line, message: Message, done: WorkCompletion) -> None:
    """A receive tells how long the message is and what came with it, and holds it."""
    if done.status is not WCStatus.SUCCESS:
        return
    before = GRH_BYTES if line.pair.type is QPType.UD else 0
    assert (done.byte_len, done.imm_data) == (before + len(message.payload), message.immdt)
    if message.range is None:
        address = line.receives[done.wr_id].address + before
        assert replay.end.space.read(address, len(message.payload)) == message.payload


@cases(WRITTEN_TO)
def test_memory_holds_what_the_peer_wrote(end: Side) -> None:
    replay = Replay(end).run()
    runs = [*replay.written.runs()]
    assert runs
    for address, data in runs:
        assert replay.end.space.read(address, len(data)) == data


def test_timers_fire_within_two_ticks_of_linux() -> None:
    waits = [wait for end in SENDERS for wait in Replay(end).run().waits]
    assert len(waits) > 250
    for wait in waits:
        assert abs(wait.ours - wait.linux) <= 2 * TICK, f"frame {wait.captured.number}"


def test_every_frame_is_compared_but_those_that_linux_sent_for_nothing() -> None:
    numbers = [
        (end.capture.name, one.captured.number)
        for end in ENDS
        for one in Replay(end).run().compared
    ]
    assert len(set(numbers)) == len(numbers)
    assert len(numbers) + sum(map(len, SPURIOUS.values())) == FRAMES
    assert sum(len(capture.read(name).frames) for name in capture.names()) == FRAMES


def test_no_byte_can_be_another_without_notice() -> None:
    captured, ours = Replay(SENDERS[0]).run().compared[0]
    assert ours is not None
    for place in range(len(ours)):
        changed = ours[:place] + bytes((ours[place] ^ 1,)) + ours[place + 1 :]
        assert not is_sealed(changed) or differing([Compared(captured, changed)])


def is_sealed(data: bytes) -> bool:
    """Whether it is a RoCEv2 frame whose lengths, checksums and ICRC fit the rest."""
    try:
        frame = roce.parse(data)
    except WireError:
        return False
    return frame.seal() == frame


def differing(compared: Iterable[Compared]) -> list[str]:
    """The frames of ours that are not the captured ones, each in a line for people."""
    return [
        f"frame {number}: {roce.parse(ours).packet if ours else 'none'}, not {frame.packet}"
        for (number, _, data, frame), ours in compared
        if ours is None or with_identification(ours, frame) != data
    ]
