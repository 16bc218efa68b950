"""The port of an adapter: its addresses, its partitions, and whether its link is up. IBA 14.2.5."""

from collections.abc import Sequence
from typing import Final

from rdmawire.ib.device import Device
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rx_parser import RxParser
from rdmawire.validate import check_bytes, check_int, check_type, iterate
from rdmawire.verbs.ah import GID_BYTES
from rdmawire.verbs.async_event import GIDChanged, PKeyChanged, PortActive, PortError
from rdmawire.verbs.engine import one_thread_at_a_time
from rdmawire.verbs.profile import Profile

PORT: Final = 1
"""The number of the only port. IBA 14.2.5.6."""

_LAST_PKEY: Final = 0xFFFF


@one_thread_at_a_time()
class Port:
    """What an adapter has one of; whoever changes it is told by an event."""

    device: Device[QueuePair]
    _unsealer: RxParser
    _gids: tuple[bytes, ...]
    _up = True
    _thread: int | None = None

    @property
    def gids(self) -> tuple[bytes, ...]:
        """The port's addresses, of 16 bytes each; packets to others are dropped."""
        return self._gids

    @gids.setter
    def gids(self, gids: Sequence[bytes]) -> None:
        self._gids = checked_gids(gids, self.device.profile)
        self._unsealer.forget()
        self.device.report_port(GIDChanged(PORT))

    @property
    def pkeys(self) -> tuple[int, ...]:
        """The P_Key table, which ``pkey_index`` of a queue pair points into. IBA 10.9.1.

        An entry with number 0 is invalid, as are those behind the last: no packet matches it.
        """
        return tuple(self.device.pkeys)

    @pkeys.setter
    def pkeys(self, pkeys: Sequence[int]) -> None:
        table = list(iterate("pkeys", pkeys))
        check_int("pkey_tbl_len", len(table), 0, self.device.profile.pkey_tbl_len)
        for pkey in table:
            check_int("pkey", pkey, 0, _LAST_PKEY)
        self.device.pkeys = table
        for qp in self.device.qps.values():
            qp.take_attributes()
        self._unsealer.forget()
        self.device.report_port(PKeyChanged(PORT))

    @property
    def up(self) -> bool:
        """Whether the port's link is up; while it is down, nothing comes in and nothing leaves."""
        return self._up

    @up.setter
    def up(self, up: bool) -> None:
        check_type("up", up, bool)
        if up != self._up:
            self._up = up
            self.device.link_downed += not up
            self.device.report_port((PortActive if up else PortError)(PORT))


def checked_gids(gids: Sequence[bytes], profile: Profile) -> tuple[bytes, ...]:
    """A GID table; :class:`VerbsError` EINVAL for one that is too long or has others in it."""
    table = tuple(iterate("gids", gids))
    check_int("gid_tbl_len", len(table), 0, profile.gid_tbl_len)
    for gid in table:
        check_bytes("gid", gid, GID_BYTES)
    return table
