"""iWARP: STags and offsets inside FPDUs, wherever TCP cuts them, and however often they come."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from rdmawire.capture import LinkType, Record
from rdmawire.cli.edit import fpdu_finder
from rdmawire.traffic.edit import ChecksumMode, Editor, edit_capture, text
from rdmawire.traffic.edit import iwarp as stream
from rdmawire.traffic.edit.iwarp import INSIDE, StreamEditor
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire.inet import TCP
from rdmawire.wire.mpa import FPDUCRC, MPAReply, MPARequest, UnusedCRC, build_fpdu
from rdmawire.wire.rdmap import RDMAPOpcode, ReadRequestHeader, TaggedHeader, segment
from rdmawire.wire.terminate import TerminatedTagged
from tests.captures import CAPTURES, EVERY, each_capture
from tests.traffic.edit.samples import checks, dissected, edited, records
from tools.make_captures.tcp import Conversation

IWARP = [path for path in EVERY if path.name.startswith(("iwarp", "siw"))]
STAG, TO = 0x1201, 0x7000
Frames = Sequence[bytes]


def start_ups(crc: int = 1) -> tuple[bytes, bytes]:
    return MPARequest(c=crc).build(), MPAReply(c=crc).build()


def write(number: int, length: int = 100) -> bytes:
    """The FPDU of a WRITE; each has another place."""
    data = segment(RDMAPOpcode.RDMA_WRITE, bytes([number]) * length, stag=STAG, to=TO + number)
    return build_fpdu(data)


def conversation(cuts: Sequence[tuple[int, int]], data: bytes, crc: int = 1) -> list[bytes]:
    """A connection in which the client says these bytes, in these pieces."""
    talk = Conversation()
    talk.open()
    request, reply = start_ups(crc)
    talk.say(0, request)
    talk.say(1, reply)
    start = talk.seq[0]
    for begin, end in cuts:
        talk.say(0, data[begin:end], seq=start + begin)
    talk.close()
    return talk.frames


def through(
    frames: Frames, rules: list[EditRule], checksum_mode: ChecksumMode = ChecksumMode.CHANGED
) -> list[bytes]:
    """What becomes of the frames of a capture; they stay in their order."""
    editor = StreamEditor[int](Editor(rules, checksum_mode=checksum_mode), fpdu_finder())
    done: list[tuple[int, bytes]] = []
    for number, data in enumerate(frames):
        done += editor.take(number, data, LinkType.ETHERNET)
    done += editor.rest()
    assert [number for number, _ in done] == [*range(len(frames))]
    return [data for _, data in done]


def stags_and_checks(frames: Frames) -> tuple[Counter[tuple[int, int]], Counter[tuple[str, bool]]]:
    """The STags and offsets of all FPDUs, and the verdicts about all checksums."""
    found: Counter[tuple[int, int]] = Counter()
    verdicts: Counter[tuple[str, bool]] = Counter()
    for one in dissected([_record(data) for data in frames]):
        found.update((h.stag, h.to) for h in one.headers() if isinstance(h, TaggedHeader))
        verdicts.update((check.name, check.good) for check in one.checks)
    return found, verdicts


def _record(data: bytes) -> Record:
    return Record(data, 0, len(data), LinkType.ETHERNET)


def moved() -> list[EditRule]:
    return [text.rkeys([f"{STAG}=0x77665544"]), text.va_offsets([f"{STAG}=-0x7001"])]


BYTES = b"".join(write(number) for number in range(1, 4))
WANTED = Counter((0x77665544, (number - 1) % (1 << 64)) for number in range(1, 4))


def check(frames: Frames) -> None:
    new = through(frames, moved())
    found, verdicts = stags_and_checks(new)
    assert found == WANTED
    assert verdicts == stags_and_checks(frames)[1]
    assert all(good for _, good in verdicts)
    assert verdicts["MPA CRC", True] == 3
    back = [text.rkeys([f"0x77665544={STAG}"]), text.va_offsets(["0x77665544=0x7001"])]
    assert through(new, back) == list(frames)


@pytest.mark.parametrize("cut", range(1, len(BYTES), 9))
def test_it_does_not_matter_where_tcp_cuts_an_fpdu(cut: int) -> None:
    check(conversation([(0, cut), (cut, len(BYTES))], BYTES))


def test_every_byte_may_come_by_itself() -> None:
    check(conversation([(at, at + 1) for at in range(len(BYTES))], BYTES))


@pytest.mark.parametrize("seed", range(20))
def test_segments_may_be_late_or_retransmitted(seed: int) -> None:
    chance = random.Random(seed)
    places = sorted({0, len(BYTES), *(chance.randrange(len(BYTES)) for _ in range(9))})
    cuts = list(pairwise(places))
    cuts += [(begin, chance.randrange(begin, len(BYTES)) + 1) for begin, _ in cuts[::2]]
    chance.shuffle(cuts)
    check(conversation(cuts, BYTES))


def test_a_segment_that_comes_again_later_is_edited_as_the_first_time() -> None:
    frames = conversation([(0, 130), (130, len(BYTES)), (5, 200)], BYTES)
    new = through(frames, moved())
    payloads = [data[54:] for data in new if len(data) > 54 + 20]
    whole = payloads[-3] + payloads[-2]
    assert payloads[-1] == whole[5:200]


def test_without_crcs_the_field_for_them_is_left_alone() -> None:
    frames = conversation([(0, len(BYTES))], BYTES, crc=0)
    new = through(frames, moved())
    assert stags_and_checks(new)[0] == WANTED
    crcs = [[h.crc for one in dissected(list(map(_record, each))) for h in one.headers()
             if isinstance(h, UnusedCRC)] for each in (frames, new)]  # fmt: skip
    assert len(crcs[0]) == 3
    assert crcs[0] == crcs[1]


def test_a_crc_that_was_wrong_stays_so_unless_all_are_sealed() -> None:
    bad = bytearray(BYTES)
    bad[-1] ^= 0x55
    frames = conversation([(0, 100), (100, len(bad))], bytes(bad))
    for checksum_mode, wrong in ((ChecksumMode.CHANGED, 1), (ChecksumMode.ALL, 0)):
        found, verdicts = stags_and_checks(through(frames, moved(), checksum_mode))
        assert found == WANTED
        assert verdicts["MPA CRC", False] == wrong
        assert verdicts["TCP checksum", False] == 0


def test_with_no_seals_the_crc_stays_as_it_was() -> None:
    frames = conversation([(0, len(BYTES))], BYTES)
    _, verdicts = stags_and_checks(through(frames, moved(), ChecksumMode.NONE))
    assert verdicts["MPA CRC", False] == 3


def test_a_crc_is_what_it_is_set_to() -> None:
    frames = conversation([(0, 100), (100, len(BYTES))], BYTES)
    rules: list[EditRule] = [text.assignment("mpa_crc.crc=0x01020304")]
    new = through(frames, rules)
    found = [h.crc for one in dissected(list(map(_record, new))) for h in one.headers()
             if isinstance(h, FPDUCRC)]  # fmt: skip
    assert found == [0x01020304] * 3
    assert not list(rules[0].unused())


def test_frames_outside_the_selection_are_used_to_follow_streams() -> None:
    frames = conversation([(0, 20), (20, len(BYTES))], BYTES)
    editor = StreamEditor[int](Editor(moved()), fpdu_finder())
    new: list[tuple[int, bytes]] = []
    for number, data in enumerate(frames):
        new += editor.take(number, data, LinkType.ETHERNET, edit=number != 5)
    new += editor.rest()
    assert new[5][1] == frames[5]
    assert sum(data != frames[number] for number, data in new) == 1


def test_the_host_of_an_stag_counts() -> None:
    read = ReadRequestHeader(STAG, 1, 8, STAG, 2)
    request = build_fpdu(segment(RDMAPOpcode.RDMA_READ_REQUEST, b"", read))
    rules: list[EditRule] = [text.rkeys([f"{STAG}@10.77.0.1=7", f"{STAG}@10.77.0.2=9"])]
    new = through(conversation([(0, len(request))], request), rules)
    (found,) = (h for one in dissected(list(map(_record, new))) for h in one.headers()
                if isinstance(h, ReadRequestHeader))  # fmt: skip
    assert (found.sink_stag, found.source_stag) == (9, 7)


def test_a_terminate_quotes_what_came_the_other_way() -> None:
    content = records(CAPTURES / "linux" / "siw612crc_err_badstag_write.pcap")
    quoted = [
        h for one in dissected(content) for h in one.headers() if isinstance(h, TerminatedTagged)
    ]
    assert quoted
    rules: list[EditRule] = [
        text.rkeys([f"{quoted[0].stag}@10.77.0.1=7", f"{quoted[0].stag}@10.77.0.2=9"])
    ]
    new = through([one.data for one in content], rules)
    after = [h.stag for one in dissected(list(map(_record, new))) for h in one.headers()
             if isinstance(h, TerminatedTagged | TaggedHeader)]  # fmt: skip
    assert Counter(after)[7] == 2
    assert quoted[0].stag not in after


def test_other_connections_wait_for_nothing() -> None:
    talk = Conversation()
    talk.open()
    for line in (b"GET / HTTP/1.1\r\n", b"Host: example\r\n"):
        talk.say(0, line)
        talk.say(1, b"HTTP/1.1 200 OK\r\n")
    editor = StreamEditor[int](Editor([text.rkeys(["1=2"]), text.ttl("3")]), fpdu_finder())
    for number, data in enumerate(talk.frames):
        assert [each for each, _ in editor.take(number, data, LinkType.ETHERNET)] == [number]


def test_both_ways_go_on_when_a_connection_turns_out_to_be_something_else() -> None:
    talk = Conversation()
    talk.send(0, b"\0\x30" + bytes(70), ack=1)
    talk.send(1, b"\0\x30" + bytes(70), ack=1)
    talk.seq = [seq + 72 for seq in talk.seq]
    for _ in range(1200):
        talk.say(0, bytes(range(256)) * 4)
    editor = StreamEditor[int](Editor([text.rkeys(["1=2"])]), fpdu_finder())
    done = [each for number, data in enumerate(talk.frames)
            for each in editor.take(number, data, LinkType.ETHERNET)]  # fmt: skip
    assert len(done) == len(talk.frames)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_WAITING", 3)
    frames = conversation([(0, 20), *[(20, 30)] * 9, (20, len(BYTES))], BYTES)
    new = through(frames, moved())
    assert sum(len(one) - len(other) for one, other in zip(frames, new, strict=True)) == 0
    tcp = [(name, good) for frame in checks([*map(_record, new)]) for name, good in frame]
    assert ("TCP checksum", False) not in tcp


def test_what_is_remembered_of_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_STREAMS", 1)
    check(conversation([(0, 120), (120, len(BYTES))], BYTES))


def keys(path: Path) -> list[int]:
    """The STags that a capture names."""
    found = set()
    for one in dissected(records(path)):
        for header in one.headers():
            rows = {row.name: row for row in type(header).rows if row.name.endswith("stag")}
            found |= {getattr(header, name) for name in rows if type(header) in INSIDE}
    return sorted(found)


@each_capture(IWARP)
def test_in_every_capture_all_stags_are_mapped_and_checksums_are_as_good(
    path: Path, tmp_path: Path
) -> None:
    before, out = keys(path), tmp_path / "out.pcap"
    there = [text.rkeys([f"{key}={key ^ 0xFFFF0000}" for key in before]), text.va_offsets(["99"])]
    back = [text.rkeys([f"{key ^ 0xFFFF0000}={key}" for key in before]), text.va_offsets(["-99"])]
    edit_capture(path, out, Editor(there), finder=fpdu_finder())
    assert keys(out) == sorted(key ^ 0xFFFF0000 for key in before)
    assert checks(records(out)) == checks(records(path))
    edit_capture(out, out, Editor(back), finder=fpdu_finder())
    assert [one.data for one in records(out)] == [one.data for one in records(path)]


def test_without_an_fpdu_finder_only_headers_up_to_tcp_are_edited() -> None:
    content = records(CAPTURES / "linux" / "siw612crc_vt_all.pcap")
    after = edited(content, [text.rkeys([f"{key}=7" for key in keys(IWARP[-1])]), text.ttl("9")])
    assert checks(after) == checks(content)
    tcps = [h for one in dissected(after) for h in one.headers() if isinstance(h, TCP)]
    assert len(tcps) == len(content)
