"""The same conversations with work posted otherwise, and with the standard's profile."""

from rdmawire.verbs.profile import IBTA
from rdmawire.verbs.wr import SendFlags
from rdmawire.wire import roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, NO_CREDITS, Ack
from rdmawire.wire.packet import Packet
from tests.ib.replay.cases import ENDS, SENDERS, cases
from tests.ib.replay.conversation import Side
from tests.ib.replay.end import in_pieces, inline
from tests.ib.replay.exceptions import with_identification
from tests.ib.replay.player import Replay

OTHERWISE = {
    ("rxe61_loss_read_resp", "server"),  # resumed_reads_go_on: FIRST, not MIDDLE
    ("rxe61_err_send_too_long", "server"),  # too_long: another NAK
    ("rxe61_vt_rc_sendinv", "client"),  # endless_retry_cnt: it gives up
}
"""Ends that the standard's profile plays otherwise, by these of its rows."""


@cases(SENDERS)
def test_inline_work_sends_the_same(end: Side) -> None:
    assert_same(Replay(end, shape=inline).run())


@cases(SENDERS)
def test_work_in_pieces_sends_and_places_the_same(end: Side) -> None:
    replay = Replay(end, shape=in_pieces).run()
    assert_same(replay)
    for line in replay.end.lines.values():
        reads = [posted for posted in line.posted if posted.message.is_read]
        for message, buffer in reads:
            data = line.answers_to_us.read(message)
            assert replay.end.space.read(buffer.address, len(data)) == data


def assert_same(replay: Replay) -> None:
    for captured, ours in replay.compared:
        assert ours is not None
        assert with_identification(ours, captured.frame) == captured.data


def test_some_work_is_inline() -> None:
    replays = [Replay(end, shape=inline) for end in SENDERS]
    wrs = [wr for replay in replays for wr in replay.run().end.work]
    assert 50 < sum(wr.flags & SendFlags.INLINE > 0 for wr in wrs) < len(wrs)


@cases([end for end in ENDS if (end.capture.name, end.name) not in OTHERWISE])
def test_by_the_standard_packets_differ_in_credits_and_migreq_alone(end: Side) -> None:
    for captured, ours in Replay(end, profile=IBTA).run().compared:
        assert ours is not None
        assert essence(roce.parse(ours).packet) == essence(captured.frame.packet)


def test_by_the_standard_the_others_differ_in_more() -> None:
    for end in ENDS:
        if (end.capture.name, end.name) in OTHERWISE:
            assert any(
                ours is None or essence(roce.parse(ours).packet) != essence(captured.frame.packet)
                for captured, ours in Replay(end, profile=IBTA).run().compared
            )


def essence(packet: Packet) -> Packet:
    """A packet without what soft-RoCE has not: credits, and path migration."""
    extended = tuple(map(_without_credits, packet.extended))
    return packet._replace(bth=packet.bth.replace(migreq=0), extended=extended)


def _without_credits(header: Header) -> Header:
    if isinstance(header, AETH) and header.ack == Ack.ACK:
        return header.replace(value=NO_CREDITS)
    return header
