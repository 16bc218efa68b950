"""Random hosts: trees of switches below host bridges, with GPUs and adapters anywhere."""

from hypothesis import strategies as st

from rdmawire.topology import (
    Device,
    DeviceKind,
    HostBridge,
    Machine,
    NumaNode,
    PcieLink,
    Settings,
    Switch,
)
from rdmawire.topology.pcie import GENERATIONS, WIDTHS

LINKS = st.builds(PcieLink, st.sampled_from(GENERATIONS), st.sampled_from(WIDTHS))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw a host with one GPU at least."""
    nodes = draw(st.integers(1, 3))
    bridges = [
        HostBridge(f"root{i}", draw(st.integers(0, nodes - 1)))
        for i in range(draw(st.integers(1, 4)))
    ]
    parents = [bridge.name for bridge in bridges]
    switches: list[Switch] = []
    for i in range(draw(st.integers(0, 5))):
        parent, link = draw(st.sampled_from(parents)), draw(LINKS)
        switches.append(Switch(f"sw{i}", parent, link, acs=draw(st.booleans())))
        parents.append(f"sw{i}")
    devices = [
        Device(f"{word}{i}", kind, draw(st.sampled_from(parents)), draw(LINKS))
        for kind, word, least in ((DeviceKind.GPU, "GPU", 1), (DeviceKind.ADAPTER, "mlx5_", 0))
        for i in range(draw(st.integers(least, 4)))
    ]
    gpus = [device.name for device in devices if device.kind is DeviceKind.GPU]
    links = draw(st.sampled_from([0, 4, 18]))
    pairs = {(one, other): links for one in gpus for other in gpus if one < other and links}
    of_nvidia = draw(st.booleans())
    numa = tuple(NumaNode(i, f"{8 * i}-{8 * i + 7}") for i in range(nodes))
    settings = Settings(peer_to_peer=draw(st.booleans()))
    nvlinks, ualinks = (pairs, {}) if of_nvidia else ({}, pairs)
    return Machine(
        "drawn", numa, tuple(bridges), tuple(switches), tuple(devices), nvlinks, settings, ualinks
    )
