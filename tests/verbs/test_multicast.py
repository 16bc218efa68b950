"""Groups: who is in, who may be, and who gets a frame."""

from dataclasses import replace
from errno import EINVAL, ENOMEM
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.verbs.ah import mapped
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.multicast import MulticastGroups
from rdmawire.verbs.profile import RXE

UD = QPType.UD
GROUPS = [ip_address(f"ff0e::{n}").packed for n in range(3)]
GROUPS.append(mapped(ip_address("239.1.2.3").packed))

# At most 3 groups, 2 queue pairs in each and 4 in all.
SMALL = replace(RXE, max_mcast_grp=3, max_mcast_qp_attach=2, max_total_mcast_qp_attach=4)


def test_a_frame_goes_to_all_queue_pairs_of_its_group() -> None:
    groups = MulticastGroups()
    for qpn in (19, 17):
        groups.attach(GROUPS[0], qpn, UD)
    groups.attach(GROUPS[3], 18, UD)
    assert [groups.members(gid) for gid in GROUPS] == [(19, 17), (), (), (18,)]


def test_attaching_twice_is_attaching_once() -> None:
    groups = MulticastGroups()
    groups.attach(GROUPS[0], 17, UD)
    groups.attach(GROUPS[0], 17, UD)
    assert groups.members(GROUPS[0]) == (17,)


@pytest.mark.parametrize("address", ["fe80::1", "::1", "10.0.0.1", "240.0.0.1"])
def test_only_groups_have_members(address: str) -> None:
    packed = ip_address(address).packed
    gid = packed if len(packed) == 16 else mapped(packed)
    groups = MulticastGroups()
    with pytest.raises(VerbsError, match="not that of a multicast group") as caught:
        groups.attach(gid, 17, UD)
    assert caught.value.errno == EINVAL
    with pytest.raises(VerbsError, match="not that of a multicast group"):
        groups.detach(gid, 17)


@pytest.mark.parametrize("size", [0, 4, 15, 17])
def test_a_gid_has_16_bytes(size: int) -> None:
    with pytest.raises(VerbsError, match="not that of a multicast group"):
        MulticastGroups().attach(b"\xff" * size, 17, UD)


@pytest.mark.parametrize("qp_type", [other for other in QPType if other != UD])
def test_only_datagrams_are_multicast(qp_type: QPType) -> None:
    with pytest.raises(VerbsError, match=f"^{qp_type.name} .* only UD") as caught:
        MulticastGroups().attach(GROUPS[0], 17, qp_type)
    assert caught.value.errno == EINVAL


def test_who_is_not_in_cannot_leave() -> None:
    groups = MulticastGroups()
    groups.attach(GROUPS[0], 17, UD)
    for gid, qpn in ((GROUPS[0], 18), (GROUPS[1], 17)):
        with pytest.raises(VerbsError, match="is not attached") as caught:
            groups.detach(gid, qpn)
        assert caught.value.errno == EINVAL


def test_a_queue_pair_is_held_until_it_left_the_last_group() -> None:
    groups = MulticastGroups()
    for gid in GROUPS[:2]:
        groups.attach(gid, 17, UD)
    groups.detach(GROUPS[0], 17)
    assert groups.holds(17)
    groups.detach(GROUPS[1], 17)
    assert not groups.holds(17)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(GROUPS), st.integers(17, 20)), max_size=40)
)
def test_beside_plain_lists(steps: list[tuple[bool, bytes, int]]) -> None:
    groups, model = MulticastGroups(SMALL), {gid: list[int]() for gid in GROUPS}
    for attaching, gid, qpn in steps:
        members = model[gid]
        if errno := refusal(model, attaching, gid, qpn):
            with pytest.raises(VerbsError) as caught:
                groups.attach(gid, qpn, UD) if attaching else groups.detach(gid, qpn)
            assert caught.value.errno == errno
        elif attaching:
            groups.attach(gid, qpn, UD)
            members += [] if qpn in members else [qpn]
        else:
            groups.detach(gid, qpn)
            members.remove(qpn)
        assert {gid: list(groups.members(gid)) for gid in GROUPS} == model


def refusal(model: dict[bytes, list[int]], attaching: bool, gid: bytes, qpn: int) -> int:
    """The errno of a step that the small device does not take, or 0."""
    members = model[gid]
    if qpn in members:
        return 0
    if not attaching:
        return EINVAL
    others = sum(bool(model[other]) for other in model if other != gid)
    full = others >= 3 or len(members) >= 2 or sum(map(len, model.values())) >= 4
    return ENOMEM if full else 0
