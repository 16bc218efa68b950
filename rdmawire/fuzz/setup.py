"""The setup of a fuzz case: one queue pair of a target, its memory regions, and the peer's path.

A setup is a value: the same setup gives the same numbers (QPN, PSNs, addresses, keys), so that a
case can be played again on another target.
"""

from dataclasses import dataclass, fields
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple, Self

from rdmawire.errors import FuzzError
from rdmawire.memory.key import Access
from rdmawire.terminal import quote_value, suggest
from rdmawire.verbs.enums import QPType
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.roce import Medium
from rdmawire.wire.serial import MODULUS

TARGET_QPN: Final = 0x11
"""The queue pair that is fuzzed."""
PEER_QPN: Final = 0x4D
"""The queue pair of the fuzzer."""
QKEY: Final = 0x11
PKEY: Final = 0xFFFF

ARENA: Final = 16 << 10
"""Bytes of memory that are compared with the model, guards included."""
FRESH_ARENA: Final = Random("1/memory of server").randbytes(ARENA)  # noqa: S311  must be repeatable
"""The bytes of the arena at the start of each case.

They are those of ``fill: random`` at the host ``server`` of a scenario with seed 1, so that a case
can be played as a scenario (:mod:`rdmawire.fuzz.replay_scenario`).
"""
RECEIVE_SLOTS: Final = 8
RECEIVE_SLOT: Final = 1024
"""Bytes for one receive. Receives use the slots in turn (:func:`receive_start`)."""


class Network(Enum):
    """The headers before the BTH."""

    ROCE2_IPV4 = "RoCEv2 over IPv4"
    ROCE2_IPV6 = "RoCEv2 over IPv6"
    ROCE1 = "RoCEv1: a GRH on Ethernet"
    IB_LOCAL = "native InfiniBand: an LRH"
    IB_GLOBAL = "native InfiniBand: an LRH and a GRH"

    __hash__ = object.__hash__  # that of Enum is a function in Python: each case needs several

    @property
    def medium(self) -> Medium:
        """What the link carries."""
        return Medium.INFINIBAND if self in _NATIVE else Medium.ETHERNET


_NATIVE: Final = (Network.IB_LOCAL, Network.IB_GLOBAL)


class Area(NamedTuple):
    """Part of the arena: ``start`` and ``length`` in bytes, and the rights of its region."""

    start: int
    length: int
    access: int


_WRITE = Access.LOCAL_WRITE | Access.REMOTE_WRITE
_ALL = (
    _WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_ATOMIC
    | Access.FLUSH_GLOBAL
    | Access.FLUSH_PERSISTENT
)

AREAS: Final = (
    Area(512, 2048, int(_ALL | Access.MW_BIND)),
    Area(3072, 512, int(Access.REMOTE_READ)),
    Area(4096, 512, int(_WRITE)),
)
"""The regions: one with all rights, one to read, one to write. The bytes between are guards."""
WINDOW: Final = Area(1024, 256, int(Access.REMOTE_WRITE | Access.REMOTE_READ))
"""A type 2 memory window over a part of the first region: its key can be invalidated."""
RECEIVES: Final = 6 << 10
"""Start of the receive slots in the arena."""

PEER_VA: Final = 0x7000_0000_0000
"""Address of the memory of the peer that the work of a target names."""
PEER_RKEY: Final = 0x4D01
"""Remote key of that memory."""
PEER_SRQN: Final = 0x31
"""Number of the peer's first shared receive queue: those of XRC packets count from it."""
MAX_SEND_WR: Final = 16
"""Send work that the queue pair of a target holds, at most."""


class SharedQueue(NamedTuple):
    """A shared receive queue of an XRC target.

    ``usable`` says whether the target may use it, ``is_xrc`` whether it belongs to an XRC domain.
    """

    usable: bool
    is_xrc: bool = True


SHARED_QUEUES: Final = (
    SharedQueue(usable=True),
    SharedQueue(usable=True),
    SharedQueue(usable=False),
    SharedQueue(usable=False, is_xrc=False),
)
"""Two queues in the XRC domain of the target, one in another domain, and one that has none."""


def receive_start(number: int, length: int) -> int:
    """Return where receive ``number`` (from 0) of ``length`` bytes starts in the arena.

    Receives use the slots in turn; one that is longer than a slot ends with the last slot at most.
    """
    start = RECEIVES + number % RECEIVE_SLOTS * RECEIVE_SLOT
    return max(min(start, RECEIVES + RECEIVE_SLOTS * RECEIVE_SLOT - length), RECEIVES)


@dataclass(frozen=True, slots=True)
class Setup:
    """Parameters of one queue pair of a target.

    ``service`` is the type of the queue pair, ``network`` the headers before the BTH, ``rnr_timer``
    the timer code of its RNR NAKs (0 to 31). ``psn`` is the first expected PSN, ``mtu`` the path
    MTU in bytes, ``rd_atomic`` the number of READs and atomics that the responder supports
    (``max_dest_rd_atomic``). ``access`` says whether the queue pair allows remote access, ``qkey``
    is that of a queue pair for datagrams. Of a requester, ``rd_atomic`` is ``max_rd_atomic``, and
    ``timeout``, ``retry_cnt`` and ``rnr_retry`` are those of ibv_modify_qp(3). Raises
    :class:`FuzzError` for values out of range.
    """

    service: QPType = QPType.RC
    network: Network = Network.ROCE2_IPV4
    psn: int = 1000
    mtu: int = 256
    rd_atomic: int = 4
    rnr_timer: int = 12
    access: bool = True
    qkey: int = QKEY
    timeout: int = 14
    retry_cnt: int = 3
    rnr_retry: int = 3

    def __post_init__(self) -> None:
        if self.mtu not in PATH_MTUS:
            raise FuzzError(f"mtu {self.mtu}: use one of {', '.join(map(str, PATH_MTUS))}")
        if not 0 <= self.psn < MODULUS:
            raise FuzzError(f"psn {self.psn}: a PSN has 24 bits")
        if not 0 <= self.rd_atomic <= 16 or not 0 <= self.rnr_timer <= 31:
            raise FuzzError("rd_atomic is 0 to 16, rnr_timer 0 to 31")
        if not 0 <= self.qkey < 1 << 32:
            raise FuzzError(f"qkey {self.qkey}: a Q_Key has 32 bits")
        if not (0 <= self.timeout <= 31 and 0 <= self.retry_cnt <= 7 and 0 <= self.rnr_retry <= 7):
            raise FuzzError("timeout is 0 to 31, retry_cnt and rnr_retry 0 to 7")

    def as_json(self) -> dict[str, Any]:
        """Return the values that JSON can hold."""
        return {
            "service": self.service.name,
            "network": self.network.name,
            "psn": self.psn,
            "mtu": self.mtu,
            "rd_atomic": self.rd_atomic,
            "rnr_timer": self.rnr_timer,
            "access": self.access,
            "qkey": self.qkey,
            "timeout": self.timeout,
            "retry_cnt": self.retry_cnt,
            "rnr_retry": self.rnr_retry,
        }

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a setup of JSON values. Raises :class:`FuzzError` for others."""
        if not isinstance(values, dict):
            raise FuzzError("setup: expected an object of names and values")
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                raise FuzzError(
                    f"setup: no value is named {quote_value(name)}{suggest(name, names)}"
                )
        made = dict(values)
        made["service"] = _member(QPType, made.get("service", "RC"), "service")
        made["network"] = _member(Network, made.get("network", "ROCE2_IPV4"), "network")
        for name in _NUMBERS:
            if name in made and (not isinstance(made[name], int) or made[name] < 0):
                raise FuzzError(f"setup: {name} is a number, not {quote_value(made[name])}")
        if type(made.get("access", True)) is not bool:
            raise FuzzError(f"setup: access is true or false, not {quote_value(made['access'])}")
        return cls(**made)


_NUMBERS: Final = (
    *("psn", "mtu", "rd_atomic", "rnr_timer", "qkey"),
    *("timeout", "retry_cnt", "rnr_retry"),
)


def _member(enum: Any, name: object, what: str) -> Any:
    if not isinstance(name, str) or name not in enum.__members__:
        raise FuzzError(
            f"setup: {what} {quote_value(name)} is none of {', '.join(enum.__members__)}"
        )
    return enum[name]
