"""The way back to the sender of a datagram: ibv_init_ah_from_wc(3)."""

from itertools import product
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import Pair, Posted
from rdmawire.verbs.ah import AddressHandle, GIDType, mapped, multicast_mac
from rdmawire.verbs.enums import NetworkType, QPType, WCFlags, WCStatus, WorkCompletion
from rdmawire.verbs.multicast import MULTICAST_QPN
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire import roce
from tests.ib.stage import Stage, only
from tests.ib.test_encapsulation import TWO_TAGS, carried

GROUP = mapped(bytes((239, 1, 2, 3)))


def asked(stage: Stage, ah: AddressHandle, qpn: int) -> tuple[WorkCompletion, Posted]:
    """What the server got of one datagram by this handle."""
    got = stage.server.receive(8)
    source = stage.client.filled(b"question")
    wr = SendWR(SendOpcode.SEND, (source.sge(),), ah=ah, remote_qpn=qpn)
    stage.client.post(wr._replace(remote_qkey=stage.server.qp.qkey))
    stage.drive()
    return only(stage.server), got


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(
    ("vlan", "sl", "gid_type"),
    list(product((None, 0, 100), (0, 5), (GIDType.ROCE_V1, GIDType.ROCE_V2))),
)
def test_a_reply_goes_back_as_the_datagram_came(
    vlan: int | None, sl: int, gid_type: GIDType, ipv6: bool
) -> None:
    stage = Stage(Pair(kind=QPType.UD, ipv6=ipv6))
    client, server = stage.client, stage.server
    label = 0x12345 if ipv6 else 0
    there = client.path_to(server, 0x68)._replace(
        vlan=vlan, sl=sl, gid_type=gid_type, hop_limit=9, flow_label=label
    )
    done, got = asked(stage, there, server.qp.qp_num)
    tagged = vlan is not None or sl > 0
    assert (done.vlan_id, done.sl) == ((vlan or 0) if tagged else None, sl)
    assert (done.smac, done.pkey_index) == (client.mac, 0)
    v2 = NetworkType.IPV6 if ipv6 else NetworkType.IPV4
    expected = NetworkType.ROCE_V1 if gid_type is GIDType.ROCE_V1 else v2
    assert done.network_hdr_type is expected
    back = server.nic.init_ah_from_wc(done, got.buffer.read(40))
    assert back == there._replace(
        dmac=client.mac, dgid=client.gid, sgid=server.gid, vlan=done.vlan_id
    )
    answer = client.receive(6)
    source = server.filled(b"answer")
    wr = SendWR(SendOpcode.SEND, (source.sge(),), ah=back, remote_qpn=done.src_qp)
    server.post(wr._replace(remote_qkey=client.qp.qkey))
    stage.drive()
    assert answer.buffer.read()[-6:] == b"answer"
    ways = [roce.parse(sent.frame).headers for sent in stage.sent]
    assert [type(header) for header in ways[0]] == [type(header) for header in ways[1]]
    assert ways[0][1:-2] == ways[1][1:-2] or not tagged


def test_a_mark_of_congestion_is_not_sent_back() -> None:
    stage = Stage(Pair(kind=QPType.UD))
    done, got = asked(stage, stage.client.path_to(stage.server, 0x6B), stage.server.qp.qp_num)
    back = stage.server.nic.init_ah_from_wc(done, got.buffer.read(40))
    assert back.traffic_class == 0x6A


def test_what_went_to_a_group_is_answered_from_an_address_of_its_own() -> None:
    stage = Stage(Pair(kind=QPType.UD))
    client, server = stage.client, stage.server
    server.nic.attach_mcast(server.qp, GROUP)
    handle = AddressHandle(multicast_mac(GROUP), GROUP, client.gid)
    done, got = asked(stage, handle, MULTICAST_QPN)
    server.nic.gids = (bytes(15) + b"\1", server.gid)
    back = server.nic.init_ah_from_wc(done, got.buffer.read(40))
    assert (back.sgid, back.dgid) == (server.gid, client.gid)
    server.nic.gids = (bytes(15) + b"\1",)
    with pytest.raises(VerbsError, match="the port has no GID"):
        server.nic.init_ah_from_wc(done, got.buffer.read(40))


def test_the_tag_next_to_the_packet_counts() -> None:
    stage = Stage(Pair(kind=QPType.UD))
    stage.server.receive(8)
    stage.client.send(b"question")
    (frame,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(carried(frame, *TWO_TAGS), 0)
    done = only(stage.server)
    assert (done.vlan_id, done.sl) == (8, 3)


@pytest.mark.parametrize(
    ("change", "grh"),
    [
        ({"wc_flags": 0}, bytes(40)),
        ({"status": WCStatus.WR_FLUSH_ERR}, bytes(40)),
        ({"network_hdr_type": NetworkType.IB}, bytes(40)),
        ({}, bytes(39)),
        ({}, bytes(41)),
        ({}, None),
    ],
)
def test_what_is_no_datagram_has_no_way_back(change: dict[str, Any], grh: Any) -> None:
    nic = Pair().client.nic
    done = WorkCompletion(1, wc_flags=WCFlags.GRH, smac=bytes(6), network_hdr_type=NetworkType.IPV4)
    with pytest.raises(VerbsError):
        nic.init_ah_from_wc(done._replace(**change), grh)
