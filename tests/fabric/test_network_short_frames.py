"""Frames with less than an Ethernet header: dropped and counted, wherever they come."""

from typing import Any

import pytest

from rdmawire.fabric.fault import Faults, Rule
from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.network import Cable, Network, star
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import gbps, us
from rdmawire.wire.inet import Ethernet

SHORT = range(Ethernet.SIZE)


def two() -> tuple[Host, Host]:
    return Host(1), Host(2)


@pytest.mark.parametrize("size", SHORT)
def test_a_switch_drops_them(size: int) -> None:
    network, (one, other) = Network(), two()
    star(network, {"a": one, "b": other}, Cable(us(1), gbps(10)))
    network.send("a", bytes(size))
    network.simulator.run()
    assert network.switches["s1"].stranded == 1
    assert not other.nic.drops


@pytest.mark.parametrize("size", SHORT)
def test_an_adapter_drops_them(size: int) -> None:
    network, (one, other) = Network(), two()
    for name, host in (("a", one), ("b", other)):
        network.add_host(name, host)
    network.join("a", "b", Link(us(1), rate=gbps(10)))
    network.send("a", bytes(size))
    network.simulator.run()
    assert other.nic.drops == {Drop.MALFORMED: 1}


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize("do", ["corrupt", "truncate", "mark", "set"])
def test_faults_apply_to_short_frames(do: str, seal: bool) -> None:
    options: dict[str, Any] = {"seal": seal} if do != "mark" else {}
    if do == "set":
        options |= {"field": "eth.src", "value": bytes(6)}
    for size in SHORT:
        network, (one, other) = Network(), two()
        star(network, {"a": one, "b": other}, Cable(us(1), gbps(10)))
        network.links["a-s1"].faults = Faults([Rule(do, **options)])
        network.send("a", bytes(size))
        network.simulator.run()
        lost = do in ("corrupt", "truncate") and (not seal or size == 0)
        assert network.switches["s1"].stranded == (not lost)
