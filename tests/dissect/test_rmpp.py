"""Transfers put together: shuffled, repeated, lost, too many, too long."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.dissect.rmpp import RMPPReassembly
from rdmawire.errors import WireError
from rdmawire.wire import mad, sa
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ManagementClass, Method
from rdmawire.wire.rmpp import RMPP, RMPPType
from rdmawire.wire.sa import SAHeader

HEAD = MAD(mgmt_class=ManagementClass.SUBN_ADM, method=Method.GET_TABLE_RESP, attribute_id=0x35)


def datagram(data: bytes = b"", **rmpp: int) -> bytes:
    """A datagram of a transfer."""
    header = RMPP(**{"type": RMPPType.DATA, "active": 1, **rmpp})
    return mad.build(HEAD, header, SAHeader(attribute_offset=8), data)


def segments(data: bytes) -> list[bytes]:
    """The datagrams of a transfer, as IBA 13.6.2.2 cuts it."""
    parts = [data[at : at + sa.DATA] for at in range(0, len(data), sa.DATA)] or [b""]
    found = []
    for number, part in enumerate(parts, start=1):
        last = number == len(parts)
        length = len(part) + SAHeader.SIZE if last else 0
        flags = {"first": int(number == 1), "last": int(last)}
        found.append(datagram(part, data1=number, data2=length, **flags))
    return found


def test_segments_in_order_give_the_data_at_the_last() -> None:
    reassembly = RMPPReassembly()
    data = bytes(range(256)) * 3
    outcomes = [reassembly.feed("key", raw) for raw in segments(data)]
    assert outcomes == [None, None, None, data]
    assert len(reassembly) == 0


@given(st.binary(max_size=1500), st.randoms(use_true_random=False), st.data())
def test_any_order_with_repeats_gives_the_data_once(
    data: bytes, random: Random, draw: st.DataObject
) -> None:
    whole = segments(data)
    sent = whole + draw.draw(st.lists(st.sampled_from(whole), max_size=6))
    random.shuffle(sent)
    reassembly = RMPPReassembly()
    outcomes = [reassembly.feed(1, raw) for raw in sent]
    assert [found for found in outcomes if found is not None] == [data]
    # It comes with the datagram that completes the set.
    at = next(i for i, found in enumerate(outcomes) if found is not None)
    assert set(sent[: at + 1]) == set(whole)
    assert set(sent[:at]) != set(whole)
    assert reassembly.refused + reassembly.late == len(sent) - len(whole)


class Model:
    """The plainest reassembly of several transfers: sets of segments, no bounds, no closing."""

    def __init__(self, transfers: dict[int, list[bytes]]) -> None:
        self.missing = {key: set(whole) for key, whole in transfers.items()}

    def feed(self, key: int, data: bytes) -> bool:
        """Whether this datagram completes its transfer."""
        before = len(self.missing[key])
        self.missing[key].discard(data)
        return before == 1 and not self.missing[key]


@given(st.lists(st.binary(max_size=900), min_size=1, max_size=4), st.data())
def test_interleaved_transfers_with_losses_agree_with_the_model(
    tables: list[bytes], data: st.DataObject
) -> None:
    transfers = {key: segments(table) for key, table in enumerate(tables)}
    every = [(key, raw) for key, whole in transfers.items() for raw in whole]
    sent = data.draw(st.lists(st.sampled_from(every), max_size=2 * len(every)))
    model, reassembly = Model(transfers), RMPPReassembly()
    for key, raw in sent:
        found = reassembly.feed(key, raw)
        assert found == (tables[key] if model.feed(key, raw) else None)
    assert reassembly.dropped == 0


@pytest.mark.parametrize("kind", [RMPPType.STOP, RMPPType.ABORT])
def test_stop_and_abort_drop_the_transfer(kind: RMPPType) -> None:
    reassembly = RMPPReassembly()
    first, second = segments(bytes(300))
    reassembly.feed("key", first)
    assert reassembly.feed("key", datagram(type=kind)) is None
    assert (len(reassembly), reassembly.dropped) == (0, 1)
    assert reassembly.feed("key", second) is None
    assert (len(reassembly), reassembly.late) == (0, 1)
    reassembly.feed("other", datagram(type=kind))
    assert reassembly.dropped == 1


def test_acknowledges_and_single_datagrams_are_no_part_of_a_transfer() -> None:
    reassembly = RMPPReassembly()
    assert reassembly.feed("key", datagram(type=RMPPType.ACK, data1=1, data2=5)) is None
    assert reassembly.feed("key", datagram(active=0, data1=1)) is None
    assert reassembly.feed("key", mad.build(MAD(mgmt_class=7), RMPP(type=1, active=1))) is None
    assert (len(reassembly), reassembly.refused) == (0, 0)


@pytest.mark.parametrize(
    "header",
    [
        {"data1": 0},
        {"data1": 2, "first": 1},
        {"data1": 1},
        {"data1": 1, "first": 1, "last": 1, "data2": 19},
        {"data1": 1, "first": 1, "last": 1, "data2": 221},
    ],
)
def test_a_segment_that_contradicts_itself_is_refused(header: dict[str, int]) -> None:
    reassembly = RMPPReassembly()
    assert reassembly.feed("key", datagram(b"", **header)) is None
    assert (reassembly.refused, len(reassembly)) == (1, 0)


def test_segments_that_contradict_each_other_are_refused() -> None:
    reassembly = RMPPReassembly()
    reassembly.feed("key", datagram(data1=5))
    reassembly.feed("key", datagram(data1=3, last=1, data2=100))
    assert reassembly.refused == 1
    reassembly.feed("key", datagram(data1=6, last=1, data2=100))
    reassembly.feed("key", datagram(data1=7))
    reassembly.feed("key", datagram(data1=4, last=1, data2=100))
    assert (reassembly.refused, len(reassembly)) == (3, 1)


def test_the_oldest_transfer_makes_room() -> None:
    reassembly = RMPPReassembly(transactions=2)
    whole = segments(bytes(300))
    for key in "abc":
        reassembly.feed(key, whole[0])
    assert (len(reassembly), reassembly.dropped) == (2, 1)
    assert [reassembly.feed(key, whole[1]) is not None for key in "abc"] == [False, True, True]


def test_a_transfer_that_grows_too_long_is_dropped() -> None:
    reassembly = RMPPReassembly(size=500)
    outcomes = [reassembly.feed("key", data) for data in segments(bytes(700))]
    assert outcomes == [None] * 4
    assert (reassembly.dropped, reassembly.late, len(reassembly)) == (1, 1, 0)
    assert reassembly.feed("next", segments(bytes(500))[0]) is None
    assert len(reassembly) == 1


def test_closed_transfers_are_dropped_in_time() -> None:
    reassembly = RMPPReassembly(transactions=2)
    whole = segments(b"data")
    for key in "abc":
        assert reassembly.feed(key, whole[0]) == b"data"
    assert reassembly.feed("c", whole[0]) is None
    assert reassembly.feed("a", whole[0]) == b"data"


def test_a_key_is_used_again_by_another_first_segment() -> None:
    reassembly = RMPPReassembly()
    assert reassembly.feed("key", segments(b"one")[0]) == b"one"
    assert reassembly.feed("key", segments(b"one")[0]) is None
    assert reassembly.feed("key", segments(b"two")[0]) == b"two"


def test_a_transfer_without_records_is_empty_not_missing() -> None:
    assert RMPPReassembly().feed("key", segments(b"")[0]) == b""


def test_a_cut_datagram_is_an_error() -> None:
    with pytest.raises(WireError, match=r"a MAD has 256 bytes .* found 255"):
        RMPPReassembly().feed("key", datagram()[:255])


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(min_size=220, max_size=220)), max_size=20))
def test_any_datagrams_stay_within_bounds(feeds: list[tuple[int, bytes]]) -> None:
    reassembly = RMPPReassembly(transactions=2, size=600)
    for key, data in feeds:
        common = HEAD.build()
        rmpp = RMPP.parse(data).replace(type=data[0] % 6, active=1, data1=data[1] % 5)
        found = reassembly.feed(key, common + rmpp.build() + data)
        assert found is None or len(found) <= 600
        assert len(reassembly) <= 2
