"""Specification of traffic, and the combinations of options that are refused."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from math import lcm
from random import Random
from typing import Final, NamedTuple, Self

from rdmawire.errors import RdmaError
from rdmawire.fabric.host import Place
from rdmawire.terminal import quote, shorten
from rdmawire.units import (
    QuantityError,
    gbps,
    parse_quantity,
    parse_share,
    rate_factor,
    size_factor,
)
from rdmawire.validate import Constraint, InstanceOf, Integer, NoneOr, Number, OneOf, check
from rdmawire.verbs.ah import mapped
from rdmawire.verbs.wr import ATOMIC_SIZE, LONGEST_MESSAGE
from rdmawire.wire.inet import mac_bytes, of_group, of_one_host
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.serial import MAX_IN_FLIGHT, MODULUS

MAX_SIZES: Final = 64


class SpecError(RdmaError):
    """Raised for traffic that cannot be made; says what was found and what is allowed."""


class Sizes(NamedTuple):
    """Lengths of messages in bytes: any within one of these ranges, both ends included."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``64``, ``4k``, ``4 KiB``, a range such as ``64-4k``, or several with commas."""
        words = text.split(",")
        if len(words) > MAX_SIZES:
            raise SpecError(f"{len(words)} sizes, {MAX_SIZES} are allowed")
        return cls(tuple(_range(word, text) for word in words))

    @property
    def largest(self) -> int:
        return max(high for _, high in self.ranges)

    @property
    def varied(self) -> bool:
        """Whether there is more than one size."""
        return len({end for ends in self.ranges for end in ends}) > 1

    def pick(self, random: Random) -> int:
        """Return a random size: first a range, then a size in it, each uniformly."""
        low, high = random.choice(self.ranges) if len(self.ranges) > 1 else self.ranges[0]
        return random.randint(low, high) if low < high else low


def _range(word: str, text: str) -> tuple[int, int]:
    low, dash, high = word.strip().partition("-")
    ends = _size(low, text), _size(high, text) if dash else _size(low, text)
    if ends[0] > ends[1]:
        raise SpecError(f"{quote(text)}: {shorten(low)} is more than {shorten(high)}")
    return ends


def _size(word: str, text: str) -> int:
    try:
        data = parse_quantity(word.strip(), size_factor)
    except QuantityError:
        data = None
    if data is None or not data.exact:
        raise SpecError(f"{quote(text)} is no size such as 64, 4k, 1M, 4 KiB, 64-4k or 64,1k")
    if data.value > LONGEST_MESSAGE:
        raise SpecError(f"{quote(text)}: a message has at most 2 GiB ({LONGEST_MESSAGE})")
    return data.value


def rate(text: str) -> int:
    """Parse bits a second: ``100G``, ``100 Gbit/s``, ``100Gbps``, ``2.5G`` or ``400000000``."""
    try:
        bits = parse_quantity(text.strip(), rate_factor).value
    except QuantityError:
        raise SpecError(f"{quote(text)} is no rate such as 100G or 25 Gbit/s") from None
    if not SLOWEST <= bits <= FASTEST:
        raise SpecError(f"{quote(text)} is not within 1M..10T bits a second")
    return bits


SLOWEST: Final = 10**6
FASTEST: Final = 10**13
"""Maximum rate (bits a second)."""


def share(text: str, most: float) -> float:
    """Parse a share of frames such as ``1%`` or ``0.01``, at most ``most``."""
    try:
        value = parse_share(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= most:
        raise SpecError(f"{quote(text)} is no share of frames such as 1% or 0.01, up to {most:.0%}")
    return value


LAST_VLAN: Final = 4094
LAST_PCP: Final = 7


class VlanTag(NamedTuple):
    """A VLAN, and the priority code point of all frames (IEEE 802.1Q, 6.9.3).

    A priority of ``None`` is the class that the DSCP of each frame selects.
    """

    vlan: int
    pcp: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``100`` or ``100:3``; :class:`SpecError` for any other text."""
        vlan, colon, pcp = text.strip().partition(":")
        try:
            found = cls(int(vlan, 0), int(pcp, 0) if colon else None)
        except ValueError:
            raise SpecError(f"{quote(text)} is no VID or VID:PCP such as 100 or 100:3") from None
        if found.vlan not in range(LAST_VLAN + 1):
            raise SpecError(f"{quote(text)}: a VLAN is within 0..{LAST_VLAN}")
        if found.pcp is not None and found.pcp not in range(LAST_PCP + 1):
            raise SpecError(f"{quote(text)}: a priority is within 0..{LAST_PCP}")
        return found


_LONGEST: Final = 80


class Address(NamedTuple):
    """An IP address, and a MAC address of 6 bytes or ``None`` for the default one."""

    ip: IPv4Address | IPv6Address
    mac: bytes | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``192.168.1.10``, ``fd00::10`` or ``192.168.1.10/0c:c4:7a:00:00:01``."""
        word, slash, mac = text.strip().partition("/")
        if len(text) > _LONGEST:
            raise _unfit(text)
        try:
            found = cls(ip_address(word), mac_bytes(mac) if slash else None)
        except ValueError:
            raise _unfit(text) from None
        if not of_one_host(found.ip) or (found.mac is not None and of_group(found.mac)):
            raise SpecError(f"{quote(text)} is no address of one host")
        return found

    def after(self, count: int) -> Self:
        """Return the address plus ``count``; :class:`SpecError` if that is not a host address.

        A given MAC address is increased as well.
        """
        try:
            ip = self.ip + count
        except AddressValueError:
            raise self._too_few(count) from None
        mac = None if self.mac is None else _counted_up(self.mac, count)
        if not of_one_host(ip) or (mac is not None and of_group(mac)):
            raise self._too_few(count)
        return type(self)(ip, mac)

    def _too_few(self, count: int) -> SpecError:
        return SpecError(f"of the {count + 1} addresses from {self.ip} on, not all are of hosts")

    @property
    def ipv6(self) -> bool:
        """Whether it is an IPv6 address."""
        return self.ip.version == 6


def _counted_up(mac: bytes, count: int) -> bytes:
    return (int.from_bytes(mac, "big") + count).to_bytes(len(mac), "big")


def _unfit(text: str) -> SpecError:
    return SpecError(f"{quote(text)} is no address such as 10.0.0.1 or 10.0.0.1/02:00:00:00:00:01")


def place(number: int, asked: Address | None, *, ipv6: bool) -> Place:
    """Return the addresses of host ``number``: the given ones, or defaults if not given."""
    usual = Place.numbered(number, ipv6=ipv6)
    if asked is None:
        return usual
    return Place(asked.mac or usual.mac, asked.ip.packed if asked.ipv6 else mapped(asked.ip.packed))


MAX_HOSTS: Final = 254
"""Maximum of clients and servers together: the host addresses of 10.0.0.0/24."""
MAX_QPS: Final = 1 << 14
MAX_LOSS: Final = 0.5
MAX_MESSAGES: Final = 10**15
LAST_SEED: Final = (1 << 64) - 1
LAST_TIMEOUT: Final = 31
CNP_DSCP: Final = 48
"""The default DSCP of CNPs: class selector 6."""
DEFAULT_MESSAGES: Final = 1000


class Verb(StrEnum):
    """The operation: one type of work, or a mix of all."""

    WRITE = "write"
    SEND = "send"
    READ = "read"
    ATOMIC = "atomic"
    UD = "ud"
    CM = "cm"
    CNP = "cnp"
    MIX = "mix"


class CapturePoint(StrEnum):
    """The capture point: at the senders, or at the receivers."""

    SENT = "sent"
    ARRIVED = "arrived"


DEFAULT_SIZES: Final = {
    Verb.WRITE: "4k",
    Verb.SEND: "4k",
    Verb.READ: "4k",
    Verb.UD: "1k",
    Verb.MIX: "64,256,1k,4k,16k",
}
"""Default sizes of verbs whose messages have a size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSpec:
    """Traffic between two or more adapters. :class:`SpecError` for contradictory options.

    ``count`` is in messages (connections of ``cm``, CNPs of ``cnp``), ``frames`` in frames, of
    which the last message may be cut. ``loss`` and ``marks`` are shares of frames, 0.0 to 1.0: lost
    ones, and ones that get Congestion Experienced (``None``: no ECN at all). ``psn`` is the initial
    PSN of all queue pairs, ``None`` for a different one each. ``rate`` is the link's rate in bits a
    second, ``latency`` its latency in ns. ``vlan`` is the VLAN of all frames, ``pcp`` the priority
    in its tag (``None``: the class that a DSCP selects), ``dscp`` the DSCP of all frames except
    CNPs, which have ``cnp_dscp``. ``timeout`` is the exponent of the Local ACK Timeout (IBA
    9.7.6.1.3), ``None`` for the shortest one that never expires without losses. ``window`` is the
    maximum of unacknowledged request packets of a queue pair, ``None`` for
    :data:`~rdmawire.wire.serial.MAX_IN_FLIGHT`. ``client`` and ``server`` are the addresses,
    ``None`` for 10.0.0.1 and 10.0.0.2, or fd00::1 and fd00::2.

    ``clients`` and ``servers`` are numbers of hosts: with more than one of either, a switch joins
    them. Then ``client`` and ``server`` are the first of each, and the addresses of the others
    follow; ``rate`` and ``latency`` apply to each host's link. ``qps`` is the number of queue pairs
    between each client and each server (``None``: one), ``flows`` the total of all of them.
    """

    verb: Verb
    sizes: Sizes | None = None
    mtu: int = 1024
    count: int | None = None
    frames: int | None = None
    qps: int | None = None
    loss: float = 0.0
    marks: float | None = None
    gpu: bool = False
    ipv6: bool = False
    vlan: int | None = None
    pcp: int | None = None
    dscp: int = 0
    psn: int | None = None
    seed: int = 0
    rate: int = gbps(100)
    latency: int = 1000
    tap: CapturePoint = CapturePoint.SENT
    timeout: int | None = None
    window: int | None = None
    cnp_dscp: int = CNP_DSCP
    client: Address | None = None
    server: Address | None = None
    clients: int = 1
    servers: int = 1
    flows: int | None = None

    def __post_init__(self) -> None:
        for name, constraint in _CONSTRAINTS.items():
            check(name, getattr(self, name), constraint, SpecError)
        for clash, reason in _CLASHES:
            if clash(self):
                raise SpecError(reason.format(spec=self))

    @property
    def messages(self) -> int | None:
        """Number of messages; ``None`` if the order counts frames."""
        if self.frames is not None:
            return None
        if self.count is not None:
            return self.count
        return max(DEFAULT_MESSAGES, self.lanes) if self.switched else DEFAULT_MESSAGES

    @property
    def hosts(self) -> int:
        """Number of clients and servers."""
        return self.clients + self.servers

    @property
    def switched(self) -> bool:
        """Whether a switch joins the hosts; two hosts are on one cable."""
        return self.hosts > _PAIR

    @property
    def links(self) -> int:
        """Number of pairs of a client and a server."""
        return 2 if self.switched else 1

    @property
    def lanes(self) -> int:
        """Queue pairs of all clients; in a mix, as many again for datagrams."""
        if self.flows is not None:
            return self.flows
        return (self.qps or 1) * self.clients * self.servers

    def pair_of(self, lane: int) -> tuple[int, int]:
        """Return the client and the server of a lane, both counted from 0.

        Lanes are assigned round robin to both, so that each host has an equal share. After each
        ``lcm(clients, servers)`` lanes the servers are rotated by one, so that every client is
        paired with every server.
        """
        turn = lane // lcm(self.clients, self.servers)
        return lane % self.clients, (lane + turn) % self.servers

    def place(self, number: int) -> Place:
        """Return the addresses of a host: clients have numbers from 1 on, servers the following."""
        behind = number - 1 - self.clients
        if behind < 0:
            return place(number, self.client and self.client.after(number - 1), ipv6=self.ipv6)
        return place(number, self.server and self.server.after(behind), ipv6=self.ipv6)

    def shared_addresses(self) -> set[str]:
        """Return the names of the fields of :class:`Place` in which two hosts are equal."""
        places = [self.place(number) for number in range(1, self.hosts + 1)]
        return {
            name
            for name in Place._fields
            if len({getattr(place, name) for place in places}) < self.hosts
        }

    @property
    def lengths(self) -> Sizes:
        """The ordered sizes, or the verb's default ones."""
        if self.sizes is not None:
            return self.sizes
        return Sizes.parse(DEFAULT_SIZES.get(self.verb, str(ATOMIC_SIZE)))


_PAIR: Final = 2
"""Hosts that need no switch."""

_CONSTRAINTS: Final[dict[str, Constraint]] = {
    "verb": InstanceOf(Verb),
    "sizes": NoneOr(InstanceOf(Sizes)),
    "mtu": OneOf(PATH_MTUS),
    "count": NoneOr(Integer(1, MAX_MESSAGES)),
    "frames": NoneOr(Integer(1, MAX_MESSAGES)),
    "qps": NoneOr(Integer(1, MAX_QPS)),
    "clients": Integer(1, MAX_HOSTS - 1),
    "servers": Integer(1, MAX_HOSTS - 1),
    "flows": NoneOr(Integer(1, MAX_QPS)),
    "vlan": NoneOr(Integer(0, LAST_VLAN)),
    "pcp": NoneOr(Integer(0, LAST_PCP)),
    "dscp": Integer(0, 63),
    "cnp_dscp": Integer(0, 63),
    "psn": NoneOr(Integer(0, MODULUS - 1)),
    "seed": Integer(0, LAST_SEED),
    "rate": Integer(SLOWEST, FASTEST),
    "latency": Integer(0, 10**9 - 1),
    "timeout": NoneOr(Integer(1, LAST_TIMEOUT)),
    "window": NoneOr(Integer(1, MAX_IN_FLIGHT)),
    "loss": Number(0, MAX_LOSS),
    "marks": NoneOr(Number(0, 1)),
}
"""The constraint of each field."""


_CLASHES: Final[tuple[tuple[Callable[[TrafficSpec], object], str], ...]] = (
    (
        lambda spec: spec.count is not None and spec.frames is not None,
        "count and frames both say how much: give one of them",
    ),
    (
        lambda spec: spec.sizes is not None and spec.verb not in DEFAULT_SIZES,
        "{spec.verb} has messages of one size: leave the size out",
    ),
    (
        lambda spec: spec.verb is Verb.UD and spec.lengths.largest > spec.mtu,
        "a datagram has at most the MTU's {spec.mtu} bytes, not {spec.lengths.largest}",
    ),
    (
        lambda spec: spec.loss and spec.verb is Verb.CNP,
        "{spec.verb} makes its frames one by one: none of them is lost",
    ),
    (
        lambda spec: spec.marks is not None and spec.verb in (Verb.ATOMIC, Verb.CM, Verb.CNP),
        "{spec.verb} has no data that could be marked: leave the ECN out",
    ),
    (
        lambda spec: spec.gpu and spec.verb is Verb.CM,
        "cm moves no messages, so no GPU memory",
    ),
    (
        lambda spec: spec.timeout is not None and spec.verb in (Verb.CM, Verb.UD),
        "{spec.verb} has no requests that wait for an ACK: leave the timeout out",
    ),
    (
        lambda spec: spec.window is not None and spec.verb in (Verb.CM, Verb.UD),
        "{spec.verb} has no requests that wait for an ACK: leave the window out",
    ),
    (
        lambda spec: spec.pcp is not None and spec.vlan is None,
        "a priority stands in the tag of a VLAN: say which VLAN",
    ),
    (
        lambda spec: spec.hosts > MAX_HOSTS,
        f"clients and servers are at most {MAX_HOSTS} hosts together, not {{spec.hosts}}",
    ),
    (
        lambda spec: spec.flows is not None and spec.qps is not None,
        "qps are those of each pair of hosts, flows those of all together: give one of them",
    ),
    (
        lambda spec: spec.lanes > MAX_QPS,
        f"qps counts for each pair of hosts: {{spec.lanes}} in all are more than {MAX_QPS}",
    ),
    (
        lambda spec: spec.lanes < max(spec.clients, spec.servers),
        "{spec.flows} flows are too few: each of the clients and of the servers takes part in one",
    ),
    (
        lambda spec: spec.switched and (spec.count or spec.frames or spec.lanes) < spec.lanes,
        "each flow sends a message at least: ask for {spec.lanes} messages or frames, or more",
    ),
    (
        lambda spec: any(end and end.ipv6 != spec.ipv6 for end in (spec.client, spec.server)),
        "the client's and the server's addresses are both of IPv4, or both of IPv6 with --ipv6",
    ),
    (
        lambda spec: "gid" in spec.shared_addresses(),
        "a client and a server have the same address",
    ),
    (
        lambda spec: "mac" in spec.shared_addresses(),
        "a client and a server have the same Ethernet address",
    ),
)
"""Invalid combinations of options, with the message for each."""
