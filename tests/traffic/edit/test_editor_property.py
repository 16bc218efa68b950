"""Any frame: an edit can be taken back, seals it, and is the same for each frame of a flow."""

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import LinkType
from rdmawire.errors import WireError
from rdmawire.testing.strategies import frames, management_packets, native_packets
from rdmawire.traffic.edit import ChecksumMode, Editor, text
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire import native, roce
from rdmawire.wire.ib import BTH, GRH, RETH, AtomicETH
from rdmawire.wire.inet import UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.layout import joined
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.show import ipv4, ipv6, mac


def swap(one: object, other: object) -> list[str]:
    """A map that takes itself back."""
    return [f"{one}={other}", f"{other}={one}"] if one != other else []


def written(address: bytes) -> str:
    return ipv4(address) if len(address) == 4 else ipv6(address)


@st.composite
def involutions(draw: st.DrawFn, frame: roce.Frame) -> list[EditRule]:
    """Rules about what is in the frame, which take themselves back."""
    (ethernet,) = (piece for piece in frame.headers if isinstance(piece, Ethernet))
    rules: list[EditRule] = [
        text.macs(swap(mac(ethernet.src), mac(draw(st.binary(min_size=6, max_size=6)))))
    ]
    for piece in frame.headers:
        if isinstance(piece, IPv4 | IPv6):
            other = draw(st.binary(min_size=len(piece.src), max_size=len(piece.src)))
            rules.append(text.ips(swap(written(piece.src), written(other))))
        if isinstance(piece, GRH):
            other = draw(st.binary(min_size=16, max_size=16))
            rules.append(text.ips(swap(written(piece.dgid), written(other))))
    number = st.integers(0, (1 << 24) - 1)
    rules.append(text.qpns(swap(frame.packet.bth.destqp, draw(number))))
    rules.append(text.psn_offsets(["0x800000"]))
    rules.append(text.va_offsets(["0x8000000000000000"]))
    keys = (each.rkey for each in frame.packet.extended if isinstance(each, RETH | AtomicETH))
    rules += [text.rkeys(swap(key, draw(st.integers(0, (1 << 32) - 1)))) for key in keys]
    return rules


@given(st.data())
def test_the_inverse_edit_restores_any_frame_and_checksums_are_good(data: st.DataObject) -> None:
    frame = data.draw(frames())
    raw, rules = frame.build(), data.draw(involutions(frame))
    editor = Editor(rules)
    new = editor.edit(raw)
    assert roce.parse(new).seal().build() == new
    moved = 0 if frame.packet.bth.opcode == Opcode.CNP else 0x800000
    assert roce.parse(new).packet.bth.psn == frame.packet.bth.psn ^ moved
    assert editor.edit(new) == raw
    assert (editor.counts.bad, editor.counts.cut) == (0, 0)


@given(st.data())
def test_frames_of_a_flow_are_edited_as_if_each_were_the_first(data: st.DataObject) -> None:
    frame = data.draw(frames())
    rules = data.draw(involutions(frame))
    editor = Editor(rules)
    editor.edit(frame.build())
    for _ in range(3):
        psn, trailer = data.draw(st.integers(0, (1 << 24) - 1)), data.draw(st.binary(max_size=9))
        other = frame._replace(trailer=trailer, packet=frame.packet._replace(
            bth=frame.packet.bth.replace(psn=psn)))  # fmt: skip
        raw = other.seal().build()
        assert editor.edit(raw) == Editor(rules).edit(raw)


@given(frames(), st.integers(0, 200), st.integers(1, 255))
def test_an_icrc_that_was_wrong_is_wrong_by_the_same_bits(
    frame: roce.Frame, at: int, flips: int
) -> None:
    bad = bytearray(frame.build())
    bad[len(bad) - len(frame.trailer) - 1 - at % 4] ^= flips
    editor = Editor([text.psn_offsets(["5"]), text.qpns([f"{frame.packet.bth.destqp}=3"])])
    new = roce.parse(editor.edit(bytes(bad)))
    assert new.icrc ^ new.expected_icrc() == roce.parse(bytes(bad)).icrc ^ frame.icrc
    assert editor.counts.bad == 1


@given(native_packets())
def test_native_packets_are_sealed_as_a_whole(packet: native.NativePacket) -> None:
    editor = Editor([text.psn_offsets(["0x800000"]), text.lids(swap(packet.lrh.slid, 7))])
    new = editor.edit(packet.build(), LinkType.INFINIBAND)
    assert native.parse(new).seal().build() == new
    assert editor.edit(new, LinkType.INFINIBAND) == packet.build()


@given(management_packets(), frames())
def test_management_datagrams_of_all_kinds_are_sealed(packet: Packet, carrier: roce.Frame) -> None:
    data = carrier._replace(packet=packet).seal().build()
    rules = [text.qpns(["0=9", "1=8"]), text.psn_offsets(["5"]), text.ips(["::/1=8000::/1"])]
    new = Editor(rules).edit(data)
    assert roce.parse(new).seal().build() == new
    assert roce.parse(new).packet.bth.destqp in (8, 9)
    assert packet.bth.destqp in MANAGEMENT_QPS


@given(st.data())
def test_a_frame_that_was_cut_off_is_what_the_whole_one_begins_with(data: st.DataObject) -> None:
    frame = data.draw(frames(longest=200))
    raw = frame.build()
    before, end = joined(*frame.headers), len(raw) - len(frame.trailer)
    headers = len(before) + BTH.SIZE + sum(header.SIZE for header in frame.packet.extended)
    kept = data.draw(st.integers(headers, end - 1))
    editor = Editor([text.psn_offsets(["0x800000"]), text.vlans(["1=2"]), text.ttl("9")])
    whole = editor.edit(raw)
    for one in (editor, Editor(editor.rules)):
        new = one.edit(raw[:kept])
        unknown = {*range(end - 4, end), *_udp_checksum(frame)}
        assert len(new) == kept
        assert all(new[at] == whole[at] for at in range(kept) if at not in unknown)
        assert one.counts.cut == 1


def _udp_checksum(frame: roce.Frame) -> range:
    """Where a checksum stands that covers the ICRC, which is not known if it is not there."""
    udp = frame.headers[-1]
    end = len(joined(*frame.headers))
    return range(end - 2, end) if isinstance(udp, UDP) and udp.checksum else range(0)


@given(st.binary(max_size=120), st.sampled_from(LinkType), st.sampled_from(ChecksumMode))
def test_whatever_the_bytes_they_stay_as_many(
    data: bytes, link_type: LinkType, checksum_mode: ChecksumMode
) -> None:
    rules = [text.psn_offsets(["1"]), text.ttl("3"), text.assignment("udp.checksum=5")]
    assert len(Editor(rules, checksum_mode=checksum_mode).edit(data, link_type)) == len(data)


@given(frames(), st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4))
def test_damaged_frames_raise_nothing(frame: roce.Frame, damage: list[tuple[int, int]]) -> None:
    data = bytearray(frame.build())
    for at, byte in damage:
        data[at % len(data)] = byte
    editor = Editor([text.psn_offsets(["1"]), text.va_offsets(["1"]), text.ecn("ce")])
    for _ in range(2):
        new = editor.edit(bytes(data))
        assert len(new) == len(data)
    try:
        before = roce.parse(bytes(data))
        is_good = before.icrc == before.expected_icrc()
    except WireError:
        return
    after = roce.parse(new)
    assert (after.icrc == after.expected_icrc()) == is_good
