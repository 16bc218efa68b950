"""Where an end is found, as it is asked for: an IP address, and the Ethernet address if given."""

from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple, Self

from rdmawire.fabric.host import Place
from rdmawire.screen import quoted
from rdmawire.traffic.generate.quantity import OrderError
from rdmawire.verbs.ah import mapped
from rdmawire.wire.address import mac_octets, of_group, of_one_host

_LONGEST: Final = 80


class Address(NamedTuple):
    """An IP address, and an Ethernet address of 6 octets, or ``None`` for the usual one."""

    ip: IPv4Address | IPv6Address
    mac: bytes | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``192.168.1.10``, ``fd00::10`` or ``192.168.1.10/0c:c4:7a:00:00:01``."""
        word, slash, mac = text.strip().partition("/")
        if len(text) > _LONGEST:
            raise _unfit(text)
        try:
            found = cls(ip_address(word), mac_octets(mac) if slash else None)
        except ValueError:
            raise _unfit(text) from None
        if not of_one_host(found.ip) or (found.mac is not None and of_group(found.mac)):
            raise OrderError(f"{quoted(text)} is no address of one host")
        return found

    def after(self, count: int) -> Self:
        """The address ``count`` behind this one; :class:`OrderError` if that is no host's.

        An Ethernet address that was given is increased as well.
        """
        try:
            ip = self.ip + count
        except AddressValueError:
            raise self._too_few(count) from None
        mac = None if self.mac is None else _counted_up(self.mac, count)
        if not of_one_host(ip) or (mac is not None and of_group(mac)):
            raise self._too_few(count)
        return type(self)(ip, mac)

    def _too_few(self, count: int) -> OrderError:
        return OrderError(f"of the {count + 1} addresses from {self.ip} on, not all are of hosts")

    @property
    def ipv6(self) -> bool:
        """Whether it is one of IPv6."""
        return self.ip.version == 6


def _counted_up(mac: bytes, count: int) -> bytes:
    return (int.from_bytes(mac, "big") + count).to_bytes(len(mac), "big")


def _unfit(text: str) -> OrderError:
    return OrderError(
        f"{quoted(text)} is no address such as 10.0.0.1 or 10.0.0.1/02:00:00:00:00:01"
    )


def place(number: int, asked: Address | None, *, ipv6: bool) -> Place:
    """Where the end with this number is: where it is asked for, and as usual in what is not."""
    usual = Place.numbered(number, ipv6=ipv6)
    if asked is None:
        return usual
    return Place(asked.mac or usual.mac, asked.ip.packed if asked.ipv6 else mapped(asked.ip.packed))
