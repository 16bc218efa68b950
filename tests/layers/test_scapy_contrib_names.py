# SPDX-License-Identifier: GPL-2.0-only
"""Scripts written for `scapy.contrib.roce` work with our layers, by the names that it has."""

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rdmawire.layers import scapy as ours

pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def theirs() -> Iterator[types.ModuleType]:
    """Scapy's own RoCE layer; what it has bound is unbound when it has been used."""
    from scapy.contrib import roce
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import split_layers

    ours.bind()
    yield roce
    split_layers(UDP, roce.BTH, dport=4791)
    split_layers(Ether, roce.GRH, type=0x8915)
    ours.bind()


def below() -> Any:
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    return link / IP(src="22.22.22.7", dst="22.22.22.8", id=1144) / UDP(sport=49152, dport=4791)


def below_v6() -> Any:
    from scapy.layers.inet import UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether

    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    return link / IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=49152, dport=4791)


def set_afterwards(roce: Any) -> Any:
    bth = roce.BTH()
    bth.dqpn, bth.solicited, bth.version, bth.padcount = 7, 1, 2, 0
    bth.opcode = "RC_COMPARE_SWAP"
    return below() / bth / bytes(28)


def forgotten(roce: Any) -> Any:
    bth = roce.BTH(opcode=4, dqpn=7, version=3, padcount=0)
    del bth.version
    return below() / bth / b"abcd"


def reserved(roce: Any) -> Any:
    padding = roce.CNPPadding(reserved1=1)
    padding.reserved2 = 1 << 63
    return below() / roce.BTH(opcode=roce.CNP_OPCODE, padcount=0) / padding


SCRIPTS: list[Callable[[Any], Any]] = [
    lambda roce: below() / roce.cnp(dqpn=211),
    lambda roce: below_v6() / roce.cnp(dqpn=211),
    lambda roce: (
        below()
        / roce.BTH(opcode=roce.opcode("RC", "ACKNOWLEDGE")[0], dqpn=24, psn=3, padcount=0)
        / roce.AETH(syndrome=0x62, msn=5)
    ),
    lambda roce: (
        below()
        / roce.BTH(
            opcode="UD_SEND_ONLY",
            solicited=1,
            migreq=1,
            version=5,
            pkey=0x8001,
            dqpn=1,
            ackreq=1,
            resv6=9,
            resv7=3,
            fecn=1,
            becn=1,
            psn=0xFFFFFF,
            padcount=0,
        )
        / bytes(12)
    ),
    lambda roce: below() / roce.BTH(opcode=4, dqpn=1, padcount=0, icrc=0x82FD002A) / b"abcd",
    lambda roce: roce.GRH(
        ipver=6, tclass=1, flowlabel=2, paylen=24, nexthdr=0x1B, hoplmt=3, sgid=1, dgid=1 << 127
    ),
    set_afterwards,
    forgotten,
    reserved,
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_builds_the_same_bytes(
    script: Callable[[Any], Any], theirs: types.ModuleType
) -> None:
    assert bytes(script(ours)) == bytes(script(theirs))


def test_every_name_that_it_defines_is_here(theirs: types.ModuleType) -> None:
    defined = {
        name
        for name, value in vars(theirs).items()
        if getattr(value, "__module__", "") == theirs.__name__ and not name.startswith("_")
    }
    assert defined == {"AETH", "BTH", "CNPPadding", "GRH", "cnp", "opcode"}
    assert defined | {"CNP_OPCODE"} <= set(ours.__all__)
    assert theirs.CNP_OPCODE == ours.CNP_OPCODE


@pytest.mark.parametrize("name", ["AETH", "BTH", "CNPPadding", "GRH"])
def test_every_field_of_its_classes_is_read_given_and_set(
    name: str, theirs: types.ModuleType
) -> None:
    for field in getattr(theirs, name).fields_desc:
        given = getattr(ours, name)(**{field.name: 1})
        after = getattr(ours, name)()
        setattr(after, field.name, 1)
        shown = "::1" if field.name in ("sgid", "dgid") else 1
        assert getattr(given, field.name) == getattr(after, field.name) == shown


def test_every_method_of_its_bth_is_here(theirs: types.ModuleType) -> None:
    assert {"compute_icrc", "pack_icrc"} <= set(vars(theirs.BTH))
    packets = [below() / roce.BTH(opcode=4, dqpn=1) / b"abcd" for roce in (ours, theirs)]
    for packet, roce in zip(packets, (ours, theirs), strict=True):
        data = bytes(packet)[42:]
        assert packet[roce.BTH].compute_icrc(data) == data[-4:]
    assert ours.BTH.pack_icrc(0x11223344) == theirs.BTH.pack_icrc(0x11223344)


def test_every_opcode_that_it_names_has_its_number(theirs: types.ModuleType) -> None:
    for number, word in theirs._bth_opcodes.items():
        assert ours.BTH(opcode=word).opcode == number
        transport, _, op = word.partition("_")
        if op:
            assert ours.opcode(transport, op) == theirs.opcode(transport, op) == (number, word)


def test_the_error_for_an_old_name_has_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="dqpn has been deprecated in favor of destqp"):
        assert ours.BTH(destqp=5).dqpn == 5


def test_an_address_that_is_too_large_a_number_is_refused() -> None:
    from rdmawire.errors import WireError

    with pytest.raises(WireError, match=r"GRH\.sgid takes bytes"):
        bytes(ours.GRH(sgid=1 << 128))
