"""Multicast groups of unreliable datagrams, IBA 10.5 and 11.3: the queue pairs in each group."""

from errno import EINVAL, ENOMEM

from rdmawire.errors import VerbsError
from rdmawire.validate import check_type
from rdmawire.verbs.ah import GID_BYTES, is_multicast
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA, Profile

MULTICAST_QPN = 0xFFFFFF
"""The destination QP of multicast packets. IBA 3.5.3."""


class MulticastGroups:
    """The multicast groups of one adapter: ``by_gid`` has the queue pairs of each, by number."""

    __slots__ = ("_attached", "_group_counts", "_profile", "by_gid")

    def __init__(self, profile: Profile = IBTA) -> None:
        self.by_gid: dict[bytes, tuple[int, ...]] = {}
        self._group_counts: dict[int, int] = {}
        """In how many groups each queue pair is."""
        self._attached = 0
        """The sum of them."""
        self._profile = profile

    def __len__(self) -> int:
        return len(self.by_gid)

    def members(self, gid: bytes) -> tuple[int, ...]:
        """The numbers of the queue pairs that a frame to ``gid`` goes to, in order of attaching."""
        return self.by_gid.get(gid, ())

    def attach(self, gid: bytes, qpn: int, qp_type: QPType) -> None:
        """Add a queue pair to a group; adding it again changes nothing.

        ``VerbsError`` EINVAL for a GID that is not multicast and for types other than UD, ENOMEM
        beyond the profile's limits. ibv_attach_mcast(3).
        """
        _check_group(gid)
        _check_type(qp_type)
        members = self.members(gid)
        if qpn in members:
            return
        self._check_room(gid, members)
        self.by_gid[gid] = (*members, qpn)
        self._count(qpn, 1)

    def detach(self, gid: bytes, qpn: int) -> None:
        """Remove a queue pair from a group; EINVAL if it is not a member. ibv_detach_mcast(3)."""
        _check_group(gid)
        members = self.members(gid)
        if qpn not in members:
            raise VerbsError(f"QP {qpn:#x} is not attached to {gid.hex(':', 2)}", EINVAL)
        self._keep(gid, tuple(other for other in members if other != qpn))
        self._count(qpn, -1)

    def _count(self, qpn: int, change: int) -> None:
        self._attached += change
        self._group_counts[qpn] = self._group_counts.get(qpn, 0) + change
        if not self._group_counts[qpn]:
            del self._group_counts[qpn]

    def holds(self, qpn: int) -> bool:
        """Whether a queue pair is in any group."""
        return qpn in self._group_counts

    def _keep(self, gid: bytes, members: tuple[int, ...]) -> None:
        if members:
            self.by_gid[gid] = members
        else:
            del self.by_gid[gid]

    def _check_room(self, gid: bytes, members: tuple[int, ...]) -> None:
        profile = self._profile
        for what, found, most in (
            ("groups", len(self.by_gid) - (gid in self.by_gid), profile.max_mcast_grp),
            ("queue pairs in the group", len(members), profile.max_mcast_qp_attach),
            ("queue pairs in all groups", self._attached, profile.max_total_mcast_qp_attach),
        ):
            if found >= most:
                raise VerbsError(f"no more than {most} {what}", ENOMEM)


def _check_group(gid: bytes) -> None:
    check_type("GID", gid, bytes)
    if len(gid) != GID_BYTES or not is_multicast(gid):
        found = gid[: GID_BYTES + 1].hex(":", 2)
        raise VerbsError(f"GID {found} is not that of a multicast group", EINVAL)


def _check_type(qp_type: QPType) -> None:
    if qp_type != QPType.UD:
        raise VerbsError(f"{qp_type.name} queue pairs have no multicast, only UD", EINVAL)
