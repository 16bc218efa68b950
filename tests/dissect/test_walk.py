"""What is remembered from frame to frame."""

from rdmawire.dissect.walk import Conversations, Session
from rdmawire.wire.inet import UDP


def test_conversations_are_numbered_by_their_first_frames() -> None:
    known = Conversations()
    assert [known.number(*ends) for ends in ("ab", "cd", "ba", "ab", "ac", "dc")] == [
        *(0, 1, 0, 0, 2, 1)
    ]


def test_an_end_may_send_to_itself() -> None:
    known = Conversations()
    assert [known.number("a", "a"), known.number("a", "a"), known.number("b", "b")] == [0, 0, 1]


def test_the_least_recent_conversation_is_dropped() -> None:
    known = Conversations(maximum=2)
    assert [known.number(*ends) for ends in ("ab", "cd", "ba", "ef")] == [0, 1, 0, 2]
    assert known.number("a", "b") == 0, "received after cd"
    assert known.number("c", "d") == 3, "forgotten: numbered anew"
    assert known.number("e", "f") == 4, "forgotten for cd"
    assert len(known._numbers) == 2


def test_datagrams_are_of_one_conversation_both_ways() -> None:
    session = Session()
    there, back = (b"aaaa", b"bbbb"), (b"bbbb", b"aaaa")
    assert session.udp_stream(there, UDP(srcport=7, dstport=4791)) == 0
    assert session.udp_stream(back, UDP(srcport=4791, dstport=7)) == 0
    assert session.udp_stream(back, UDP(srcport=7, dstport=4791)) == 1
    assert session.udp_stream((b"", b""), UDP(srcport=7, dstport=4791)) == 2
