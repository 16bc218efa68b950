"""The setup of a state-level case: hosts, connections between them, and their attributes.

A setup is a value that JSON can hold. Queue pairs, called ends, are numbered in the order of the
connections: the connection with index ``n`` has the ends ``2 n`` and ``2 n + 1``.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from rdmawire.errors import FuzzError
from rdmawire.terminal import quote_value
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.qp_attr import QPAttributes
from rdmawire.wire.management import MTU
from rdmawire.wire.serial import MODULUS

SERVICES: Final = ("RC", "UC", "UD", "XRC")
"""Services of connections. The second end of an XRC connection is its target."""
MAX_HOSTS: Final = 3
MAX_CONNECTIONS: Final = 2
PATH_MTU: Final = 256
"""Path MTU in bytes."""
RD_ATOMIC: Final = 2
"""READs and atomics in progress, at requester and responder."""
TIMEOUT: Final = 8
"""Exponent of the Local ACK Timeout: 4.096 us times two to its power. IBA 9.7.6.1.3."""
RETRY_CNT: Final = 2
RNR_RETRY: Final = 2
RNR_TIMER: Final = 1
"""Index of the RNR NAK timer: 0.01 ms. IBA 9.7.5.2.8."""
FIRST_QPN: Final = 0x20
"""The QPN of the first end; the others follow."""


class Connection(NamedTuple):
    """Two ends: the service, the hosts by index, and the first PSN of each direction."""

    service: str
    hosts: tuple[int, int]
    psns: tuple[int, int]

    @property
    def types(self) -> tuple[QPType, QPType]:
        """The queue pair types of both ends."""
        if self.service == "XRC":
            return QPType.XRC_INI, QPType.XRC_TGT
        return QPType[self.service], QPType[self.service]


@dataclass(frozen=True, slots=True)
class StateSetup:
    """Hosts and their connections.

    ``profiles`` has the name of each host's profile. Raises :class:`FuzzError` for numbers out of
    range and unknown names.
    """

    connections: tuple[Connection, ...]
    profiles: tuple[str, ...] = ("ibta", "ibta")

    def __post_init__(self) -> None:
        if not 2 <= len(self.profiles) <= MAX_HOSTS:
            raise FuzzError(f"setup: 2 to {MAX_HOSTS} hosts, not {len(self.profiles)}")
        for name in self.profiles:
            if name not in PROFILES:
                raise FuzzError(
                    f"setup: profile {quote_value(name)} is none of {', '.join(PROFILES)}"
                )
        if not 1 <= len(self.connections) <= MAX_CONNECTIONS:
            raise FuzzError(f"setup: 1 to {MAX_CONNECTIONS} connections")
        for connection in self.connections:
            self._check(connection)

    def _check(self, connection: Connection) -> None:
        service, hosts, psns = connection
        if service not in SERVICES:
            raise FuzzError(
                f"setup: service {quote_value(service)} is none of {', '.join(SERVICES)}"
            )
        if hosts[0] == hosts[1] or not all(0 <= host < len(self.profiles) for host in hosts):
            raise FuzzError(f"setup: hosts {hosts} are not two of {len(self.profiles)}")
        if not all(0 <= psn < MODULUS for psn in psns):
            raise FuzzError(f"setup: PSNs {psns}: a PSN has 24 bits")

    def as_json(self) -> dict[str, Any]:
        """Return the values that JSON can hold."""
        connections = [
            {"service": one.service, "hosts": list(one.hosts), "psns": list(one.psns)}
            for one in self.connections
        ]
        return {"profiles": list(self.profiles), "connections": connections}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a setup of JSON values. Raises :class:`FuzzError` for others."""
        try:
            connections = tuple(
                Connection(str(one["service"]), _pair(one["hosts"]), _pair(one["psns"]))
                for one in values["connections"]
            )
            return cls(connections, tuple(map(str, values["profiles"])))
        except (KeyError, TypeError, ValueError) as error:
            raise FuzzError(f"setup: expected profiles and connections: {error}") from error


def _pair(values: Any) -> tuple[int, int]:
    first, second = values
    if type(first) is not int or type(second) is not int:
        raise ValueError(f"{values} are not two numbers")
    return first, second


ATTRIBUTES: Final = QPAttributes(
    path_mtu=MTU.MTU_256,
    qkey=0x11,
    max_rd_atomic=RD_ATOMIC,
    max_dest_rd_atomic=RD_ATOMIC,
    min_rnr_timer=RNR_TIMER,
    timeout=TIMEOUT,
    retry_cnt=RETRY_CNT,
    rnr_retry=RNR_RETRY,
)
"""Attributes of all ends, but for the path, the peer, the PSNs and the access rights."""
