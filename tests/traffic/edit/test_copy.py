"""Captures from file to file: formats, times, interfaces, comments, damage."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import COMMENT, Interface, LinkType, Record, create_capture, open_capture
from rdmawire.capture.reader import Reader
from rdmawire.errors import CaptureError
from rdmawire.testing.strategies import frames
from rdmawire.traffic.edit import EditError, Editor, RecordAction, edit_capture, text
from rdmawire.traffic.edit.copy import Choose, later, untagged
from rdmawire.traffic.edit.copy import tagged as with_tag
from rdmawire.wire.erf import ERF
from rdmawire.wire.inet import VLAN, EtherType, IPv4, ServiceVLAN
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import Frame, parse
from tests.captures import CAPTURES
from tests.traffic.edit.frames import frame, packet, tagged
from tests.traffic.edit.samples import LINUX, records

SEND = frame(packet(Opcode.RC_SEND_ONLY, payload=b"hello", psn=5))
TIME = 1_700_000_000_123_456_789
HASH, FLAGS = (3, b"\2abcd"), (2, b"\1\0\0\0")
WLAN = 105
INTERFACES = (
    Interface(LinkType.ETHERNET, 96, "eth0", "the first", 1_000_000_000),
    Interface(WLAN, 0, "wlan0", "", 1_000_000, offset_seconds=1000),
    Interface(LinkType.ETHERNET, 0, "eth1", "no traffic here", 1 << 20),
)


def editor() -> Editor:
    return Editor([text.psn_offsets(["1"])])


def psns(path: Path) -> list[int]:
    return [parse(one.data).packet.bth.psn for one in records(path)]


@pytest.fixture
def sections(tmp_path: Path) -> Path:
    """A pcapng with several interfaces, comments, and bytes that are no Ethernet."""
    path = tmp_path / "in.pcapng"
    with create_capture(path, interfaces=INTERFACES) as writer:
        writer.write(Record(SEND, TIME, len(SEND), 1, 0, ((COMMENT, b"look"), FLAGS, HASH)))
        writer.write(Record(b"beacon", TIME + 7000, 6, WLAN, 1))
        writer.write(Record(SEND[:60], TIME, len(SEND), 1, 0, (HASH,)))
    return path


def test_interfaces_times_comments_and_lengths_stay(sections: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng.zst"
    edit_capture(sections, out, editor())
    with open_capture(sections) as before, open_capture(out) as after:
        old, new = list(before), list(after)
        assert tuple(after.interfaces) == INTERFACES
        assert after.compression == "zstd"
    for one, other in zip(old, new, strict=True):
        assert (one.time_ns, one.length, one.interface) == (
            other.time_ns, other.length, other.interface,
        )  # fmt: skip
    assert new[0].comments == ("look",)
    assert parse(new[0].data).packet.bth.psn == 6
    assert new[1] == old[1]


def test_a_hash_over_a_frame_goes_where_the_frame_is_another_one(
    sections: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.pcapng"
    edit_capture(sections, out, editor())
    assert records(out)[0].options == ((COMMENT, b"look"), FLAGS)
    edit_capture(sections, out, Editor([]))
    assert records(out) == records(sections)


def test_a_pcap_takes_what_it_has_a_place_for_and_the_rest_is_counted(
    sections: Path, tmp_path: Path
) -> None:
    def not_wireless(_: Reader) -> Choose:
        return lambda record: RecordAction.EDIT if record.link_type == 1 else RecordAction.DROP

    one = editor()
    edit_capture(sections, tmp_path / "out.pcap", one, chooser=not_wireless)
    assert [record.options for record in records(tmp_path / "out.pcap")] == [(), ()]
    assert (one.counts.plain, one.counts.dropped, one.counts.written) == (1, 1, 2)
    assert records(tmp_path / "out.pcap")[0].time_ns == TIME


def test_link_types_that_a_pcap_cannot_hold_together_are_refused_and_nothing_is_written(
    sections: Path, tmp_path: Path
) -> None:
    one = editor()
    with pytest.raises(CaptureError) as refused:
        edit_capture(sections, tmp_path / "out.pcap", one)
    reason = "link type 105 does not fit a pcap of link type 1; write FILE.pcapng"
    assert str(refused.value) == f"{sections}: frame 2: {reason}"
    assert one.counts.written is None
    assert list(tmp_path.iterdir()) == [sections]


def test_a_pcap_has_the_link_type_of_the_frames_that_are_kept(
    sections: Path, tmp_path: Path
) -> None:
    def wireless(_: Reader) -> Choose:
        return lambda record: RecordAction.EDIT if record.link_type == WLAN else RecordAction.DROP

    out = tmp_path / "out.pcap"
    edit_capture(sections, out, editor(), chooser=wireless)
    assert [(record.link_type, record.data) for record in records(out)] == [(WLAN, b"beacon")]


def test_a_pcap_of_no_frames_has_the_link_type_of_the_first_interface(
    sections: Path, tmp_path: Path
) -> None:
    edit_capture(
        sections, tmp_path / "out.pcap", editor(), chooser=lambda _: lambda _: RecordAction.DROP
    )
    with open_capture(tmp_path / "out.pcap") as reader:
        assert (list(reader), reader.interfaces[0].link_type) == ([], LinkType.ETHERNET)


def test_a_frame_with_a_time_too_late_for_a_pcap_is_named(tmp_path: Path) -> None:
    early, out = tmp_path / "early.pcap", tmp_path / "out.pcap"
    with create_capture(early) as writer:
        writer.write(Record(SEND, TIME, len(SEND), LinkType.ETHERNET))
    with pytest.raises(
        CaptureError, match=f"^{early}: frame 1: Record.time_ns: .* in a pcap, whose times end at"
    ):
        edit_capture(early, out, Editor([]), changes=[later(1 << 62)])
    assert list(tmp_path.iterdir()) == [early]


@pytest.mark.parametrize("nanoseconds", [False, True])
def test_a_pcap_keeps_its_resolution_and_its_snap_length(nanoseconds: bool, tmp_path: Path) -> None:
    source, out = tmp_path / "in.pcap", tmp_path / "out.pcap"
    with create_capture(source, nanoseconds=nanoseconds, snap_length=80) as writer:
        writer.write(Record(SEND[:80], TIME, len(SEND), 1))
    edit_capture(source, out, Editor([]))
    assert out.read_bytes() == source.read_bytes()


def test_what_has_no_suffix_is_of_the_source_s_format(sections: Path, tmp_path: Path) -> None:
    edit_capture(sections, tmp_path / "plain", editor())
    with open_capture(tmp_path / "plain") as reader:
        assert reader.format == "pcapng"
    edit_capture(LINUX / "rxe61_rping.pcap", tmp_path / "other.PCAPNG", editor())
    with open_capture(tmp_path / "other.PCAPNG") as reader:
        assert reader.format == "pcapng"


def test_a_capture_may_take_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    with create_capture(path) as writer:
        for _ in range(3):
            writer.write(Record(SEND, TIME, len(SEND), 1))
    edit_capture(path, path, editor())
    edit_capture(path, path, editor())
    assert psns(path) == [7, 7, 7]


def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "damaged.pcap"
    with create_capture(path) as writer:
        for _ in range(3):
            writer.write(Record(SEND, TIME, len(SEND), 1))
    path.write_bytes(path.read_bytes()[:-1])
    return path


def test_frames_before_damage_are_written_and_then_the_damage_is_reported(tmp_path: Path) -> None:
    path = damaged(tmp_path)
    one = editor()
    with pytest.raises(CaptureError, match="a record claims"):
        edit_capture(path, tmp_path / "out.pcap", one)
    assert psns(tmp_path / "out.pcap") == [6, 6]
    assert one.counts.written == 2


def test_a_damaged_capture_does_not_lose_its_place(tmp_path: Path) -> None:
    path = damaged(tmp_path)
    before = path.read_bytes()
    with pytest.raises(CaptureError, match="a record claims"):
        edit_capture(path, path, editor())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_capture_of_which_nothing_can_be_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes((LINUX / "rxe61_rping.pcap").read_bytes()[:30])
    with pytest.raises(CaptureError, match="a record header takes"):
        edit_capture(path, tmp_path / "out.pcap", editor())
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_capture_is_still_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    with create_capture(path, link_type=LinkType.INFINIBAND):
        pass
    edit_capture(path, tmp_path / "out.pcapng", editor())
    with open_capture(tmp_path / "out.pcapng") as reader:
        assert list(reader) == []
        assert [each.link_type for each in reader.interfaces] == [LinkType.INFINIBAND]


def test_progress_is_reported_in_bytes_of_the_source(tmp_path: Path) -> None:
    bytes_done: list[int] = []
    source = LINUX / "rxe61_vt_rc_sendinv.pcap"
    edit_capture(source, tmp_path / "out.pcap", editor(), progress=bytes_done.append)
    assert bytes_done == [source.stat().st_size]


def test_times_move_and_extensible_records_tell_the_same() -> None:
    for ts in (TIME << 32) // 1_000_000_000, (TIME << 32) // 1_000_000_000 + 3:
        data = ERF(ts.to_bytes(8, "little"), type=2, rlen=16).build() + b"more"
        record = Record(data, ERF.parse(data).time_ns, len(data), LinkType.ERF)
        moved = later(-1_500_000_001)(record)
        assert moved.time_ns == record.time_ns - 1_500_000_001
        assert abs(ERF.parse(moved.data).time_ns - moved.time_ns) <= 1
        assert later(1_500_000_001)(moved) == record


def test_an_extensible_record_without_a_time_gets_none() -> None:
    (record, *_) = records(CAPTURES / "generated" / "native_erf.pcap")
    assert later(5)(record) == record._replace(time_ns=record.time_ns + 5)


def test_a_time_before_1970_is_refused(tmp_path: Path) -> None:
    early, out = tmp_path / "early.pcap", tmp_path / "out.pcap"
    with create_capture(early) as writer:
        for time_ns in (2_000_000_000, 500_000_000):
            writer.write(Record(SEND, time_ns, len(SEND), LinkType.ETHERNET))
    with pytest.raises(EditError) as refused:
        edit_capture(early, out, Editor([]), changes=[later(-1_250_000_000)])
    message = "frame 2 to write is at 0.5 s and cannot come 1.25 s earlier"
    assert str(refused.value) == message
    assert list(tmp_path.iterdir()) == [early]


def test_tags_go_and_checksums_stay() -> None:
    data = Frame(tagged(3, 5), packet(Opcode.RC_SEND_ONLY, payload=b"hello")).seal().build()
    found = untagged(Record(data, 0, len(data), LinkType.ETHERNET))
    assert found.length == len(found.data) == len(data) - 8
    assert parse(found.data).seal().build() == found.data
    assert untagged(found) is found
    assert isinstance(parse(found.data).headers[1], IPv4)


@pytest.mark.parametrize("kept", range(12, 22))
def test_a_truncated_tag_is_removed_if_it_can_be_recognised(kept: int) -> None:
    data = Frame(tagged(3, 5), packet(Opcode.RC_SEND_ONLY)).seal().build()
    found = untagged(Record(data[:kept], 0, len(data), LinkType.ETHERNET))
    gone = 4 * ((kept >= 14) + (kept >= 18))
    assert found.data == data[:12] + data[12 + gone : kept]
    assert found.length == len(data) - gone


def test_only_ethernet_frames_have_tags_to_lose() -> None:
    record = Record(bytes(12) + b"\x81\0\0\1\x08\0", 0, 18, LinkType.RAW)
    assert untagged(record) is record


@given(frames(), st.integers(0, 4095), st.integers(0, 7), st.integers(0, 40))
def test_a_tag_for_frames_without_one_is_undone_by_taking_tags_away(
    frame: Frame, vlan: int, priority: int, cut: int
) -> None:
    data = frame.build()
    record = Record(data[: len(data) - cut], 5, len(data), LinkType.ETHERNET)
    found = with_tag(vlan, priority)(record)
    if any(isinstance(piece, VLAN | ServiceVLAN) for piece in frame.headers):
        assert found is record
        return
    tag = VLAN.parse(found.data, 14)
    assert (tag.id, tag.priority) == (vlan, priority)
    assert (len(found.data), found.length) == (len(record.data) + 4, record.length + 4)
    assert untagged(found) == record
    if not cut:
        assert parse(found.data).seal().build() == found.data


@pytest.mark.parametrize(
    ("data", "link_type"),
    [
        (SEND[:13], LinkType.ETHERNET),
        (SEND, LinkType.RAW),
        (SEND[:12] + EtherType.MAC_CONTROL.to_bytes(2, "big") + SEND[14:], LinkType.ETHERNET),
    ],
)
def test_pauses_and_what_is_no_ethernet_frame_get_no_tag(data: bytes, link_type: int) -> None:
    record = Record(data, 0, len(SEND), link_type)
    assert with_tag(5)(record) is record


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
def test_there_is_room_for_tags_where_frames_are_as_long_as_may_be(
    suffix: str, tmp_path: Path
) -> None:
    source, out = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
    with create_capture(source, snap_length=len(SEND)) as writer:
        writer.write(Record(SEND, TIME, len(SEND), LinkType.ETHERNET))
    edit_capture(source, out, Editor([]), changes=[with_tag(5)], growth=VLAN.SIZE)
    with open_capture(out) as reader:
        (record,) = reader
        assert [each.snap_length for each in reader.interfaces] == [len(SEND) + 4]
    assert untagged(record).data == SEND


def test_a_hash_goes_with_the_tags() -> None:
    record = Record(SEND, 0, len(SEND), LinkType.ETHERNET, 0, (HASH, FLAGS))
    found = with_tag(5)(record)
    assert found.options == (FLAGS,)
    assert untagged(found._replace(options=(HASH, FLAGS))).options == (FLAGS,)
