"""The exceptions to "byte for byte", each with the frames that need it."""

from collections.abc import Iterator
from pathlib import Path

from rdmawire.wire import roce
from tests.ib.replay import capture
from tests.ib.replay.capture import Seen
from tests.ib.replay.cases import ANSWERERS, SENDERS, cases
from tests.ib.replay.conversation import CLIENT, SERVER, Side, side
from tests.ib.replay.exceptions import EXCEPTIONS, SPURIOUS, with_identification
from tests.ib.replay.facts import LOST, TWICE
from tests.ib.replay.player import Compared, Replay

MANAGEMENT_FRAMES = 12
PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"
_BURSTS = [end for end in ANSWERERS if end.capture.name not in {*LOST, *TWICE, *SPURIOUS}]
"""Where no answer was lost and no request repeated."""


def test_identification_is_all_that_differs_over_ipv4() -> None:
    captured, ours = next(pairs(Replay(client("rxe61_write_lat")).run()))
    assert ours != captured.data
    assert with_identification(ours, captured.frame) == captured.data


def test_over_ipv6_nothing_differs() -> None:
    for captured, ours in pairs(Replay(client("rxe61_vt_rc_v6")).run()):
        assert ours == captured.data


def test_management_datagrams_are_left_out() -> None:
    assert sum(len(capture.read(name).management) for name in capture.names()) == MANAGEMENT_FRAMES


def test_spurious_requests_come_before_an_answer_is_late() -> None:
    for name, numbers in SPURIOUS.items():
        end = client(name)
        timeout = 4096 << 14
        for seen in end.sent:
            if seen.number in numbers:
                assert seen.time - sent_before(end, seen).time < timeout


def sent_before(end: Side, seen: Seen) -> Seen:
    """The same request, the time before."""
    same = [one for one in end.sent if one.psn == seen.psn and one.number < seen.number]
    return same[-1]


def test_a_lost_read_response_is_missed_at_the_next_one() -> None:
    replay = Replay(client("rxe61_loss_read_resp")).run()
    again = [one for one in replay.compared if one.captured.number == 19]
    assert again
    assert not replay.waits


def test_linux_counts_its_timeouts_in_ticks() -> None:
    waits = [wait for end in SENDERS for wait in Replay(end).run().waits]
    assert any(wait.ours > wait.linux for wait in waits)


@cases([end for end in SENDERS if end.capture.name not in {*LOST, *SPURIOUS}])
def test_sent_at_once_requests_are_the_same(end: Side) -> None:
    for captured, ours in pairs(Replay(end, hasty=True).run()):
        assert with_identification(ours, captured.frame) == captured.data


def test_sent_at_once_a_whole_message_goes_before_the_nak_of_its_third_packet() -> None:
    replay = Replay(client("rxe61_loss_req_middle"), hasty=True).run()
    psns = [roce.parse(ours).packet.bth.psn - 256 for _, ours in pairs(replay)]
    assert psns[:8] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [one.captured.psn - 256 for one in replay.compared][:8] == [0, 1, 2, 3, 2, 3, 4, 5]


@cases(_BURSTS)
def test_answers_to_bursts_are_among_those_of_linux_and_end_alike(end: Side) -> None:
    ours, captured = answers_to_bursts(end)
    for data in ours:
        assert any(with_identification(data, seen.frame) == seen.data for seen in captured)
    assert with_identification(ours[-1], captured[-1].frame) == captured[-1].data


def test_acks_to_bursts_are_fewer() -> None:
    ours, captured = answers_to_bursts(server("rxe61_send_bw_rc"))
    assert 0 < len(ours) < len(captured)


def answers_to_bursts(end: Side) -> tuple[list[bytes], list[Seen]]:
    """Our responses, when Linux's went out, and Linux's."""
    compared = [one for one in Replay(end, bursts=True).run().compared if is_answer(one)]
    return [one.ours for one in compared if one.ours], [one.captured for one in compared]


def is_answer(one: Compared) -> bool:
    return one.captured.shape.response


def pairs(replay: Replay) -> Iterator[tuple[Seen, bytes]]:
    """Captured frames with ours."""
    for captured, ours in replay.compared:
        assert ours is not None
        yield captured, ours


def client(name: str) -> Side:
    return side(capture.read(name), CLIENT)


def server(name: str) -> Side:
    return side(capture.read(name), SERVER)


def test_every_exception_stands_on_the_page() -> None:
    page = PAGE.read_text()
    for one in EXCEPTIONS:
        assert f"| {one.what} | {one.instead} | {one.reason} |" in page
