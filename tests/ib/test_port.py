"""The tables of a port and its link: what is for it, and what changes with them."""

from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import End, Pair
from rdmawire.ib.device import DEFAULT_PKEY
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.ah import mapped
from rdmawire.verbs.async_event import GIDChanged, PKeyChanged, PortActive, PortError
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask


def test_an_address_that_a_port_lost_is_no_longer_its_own() -> None:
    pair = Pair()
    pair.client.write(b"before", to=pair.server.region)
    pair.drive()
    pair.server.nic.gids = (mapped(bytes((10, 9, 9, 9))),)
    assert pair.server.nic.next_event() == GIDChanged(port=1)
    pair.client.write(b"after", to=pair.server.region)
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [
        WCStatus.SUCCESS,
        WCStatus.RETRY_EXC_ERR,
    ]
    assert pair.server.region.read(6) == b"before"
    assert pair.server.nic.drops[Drop.NOT_MINE] == 8


def test_a_queue_pair_is_of_the_partition_that_its_index_points_to() -> None:
    pair = Pair()
    for end in (pair.client, pair.server):
        end.nic.pkeys = (DEFAULT_PKEY, 0x8123)
        assert end.events() == [PKeyChanged(port=1)]
    _join(pair.client, 1)
    pair.client.write(b"lost", to=pair.server.region)
    pair.drive()
    assert pair.server.nic.drops == {Drop.PKEY: 8}
    pair = Pair()
    for end in (pair.client, pair.server):
        end.nic.pkeys = (DEFAULT_PKEY, 0x8123)
        _join(end, 1)
    pair.client.write(b"found", to=pair.server.region)
    pair.drive()
    assert pair.server.region.read(5) == b"found"


@pytest.mark.parametrize("pkeys", [(DEFAULT_PKEY,), (DEFAULT_PKEY, 0), (DEFAULT_PKEY, 0x8000)])
def test_an_invalid_p_key_matches_none(pkeys: tuple[int, ...]) -> None:
    pair = Pair()
    for end in (pair.client, pair.server):
        end.nic.pkeys = pkeys
        _join(end, 1)
    pair.client.write(b"lost", to=pair.server.region)
    pair.drive()
    assert pair.server.nic.drops == {Drop.PKEY: 8}


def test_a_partition_that_a_port_leaves_is_left_by_its_queue_pairs() -> None:
    pair = Pair()
    pair.server.nic.pkeys = (0x8001,)
    pair.client.write(b"lost", to=pair.server.region)
    pair.drive()
    assert pair.server.nic.drops == {Drop.PKEY: 8}
    assert pair.server.nic.pkeys == (0x8001,)


@pytest.mark.parametrize(
    ("pkeys", "said"),
    [
        ((1 << 16,), "pkey: 65536 is not an integer from 0 to 65535"),
        ((DEFAULT_PKEY,) * 129, "pkey_tbl_len: 129 is not an integer from 0 to 128"),
        (("x",), "pkey: 'x' .* is not an integer"),
        (7, "pkeys: 7 is not a sequence"),
    ],
)
def test_a_table_that_cannot_be_is_refused(pkeys: Any, said: str) -> None:
    nic = Pair().client.nic
    with pytest.raises(VerbsError, match=said):
        nic.pkeys = pkeys
    assert nic.pkeys == (DEFAULT_PKEY,)
    assert nic.next_event() is None


def test_while_a_link_is_down_nothing_passes() -> None:
    pair = Pair()
    pair.server.nic.up = False
    pair.server.nic.up = False
    assert pair.server.events() == [PortError(port=1)]
    pair.client.write(b"lost", to=pair.server.region)
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [WCStatus.RETRY_EXC_ERR]
    assert pair.server.nic.drops == {Drop.PORT_DOWN: 8}


def test_a_link_that_comes_up_again_carries_what_is_sent_again() -> None:
    pair = Pair()
    pair.client.nic.up = False
    pair.client.write(b"later", to=pair.server.region)
    pair.client.nic.transmit(0)
    pair.client.nic.up = True
    assert pair.client.events() == [PortError(port=1), PortActive(port=1)]
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS]
    assert pair.server.region.read(5) == b"later"


def test_frames_that_come_together_are_lost_together() -> None:
    pair = Pair()
    pair.client.write(bytes(4096), to=pair.server.region)
    frames = pair.client.nic.transmit(0)
    pair.server.nic.up = False
    pair.server.nic.receive_all(frames, 0)
    assert pair.server.nic.drops == {Drop.PORT_DOWN: len(frames)}


def _join(end: End, index: int) -> None:
    """Have the queue pair's packets be of the partition at this place of the table."""
    for state, mask in (
        (QPState.SQD, QPAttrMask(0)),
        (QPState.SQD, QPAttrMask.PKEY_INDEX),
        (QPState.RTS, QPAttrMask(0)),
    ):
        attributes = QPAttributes(qp_state=state, pkey_index=index)
        end.nic.modify_qp(end.qp, attributes, mask | QPAttrMask.STATE)
    end.events()
