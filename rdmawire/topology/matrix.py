"""The matrices of ``nvidia-smi topo -m`` and ``-p2p``: written for a host, and read from text."""

import re
from itertools import combinations, product
from typing import Final, NamedTuple

from rdmawire.errors import TopologyError
from rdmawire.topology.machine import (
    Device,
    DeviceKind,
    HostBridge,
    Machine,
    NumaNode,
    Settings,
    Switch,
)
from rdmawire.topology.relation import (
    Capability,
    Level,
    peer_status,
    relation,
)

_LEGEND: Final = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""  # noqa: E501 - the words that nvidia-smi writes
_UALINK_LEGEND: Final = "  UA#  = Connection traversing a bonded set of # UALinks\n"
"""The words of another vendor's links are not known: these are in the manner of the others."""
_PEER_LEGEND: Final = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown
"""


def topology_matrix(machine: Machine) -> str:
    """Return the matrix of GPUs and adapters as ``nvidia-smi topo -m`` writes it.

    UALinks, which that program does not know, are ``UA`` with their number.
    """
    devices = [*machine.gpus, *machine.adapters]
    labels = _labels(machine)
    head = ["", *labels, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    lines = ["\t".join(head)]
    for label, device in zip(labels, devices, strict=True):
        cells = [_cell(str(relation(machine, device, other))) for other in devices]
        lines.append("\t".join([label, *cells, *_affinity(machine, device)]))
    names = [
        f"  {label}: {device.name}"
        for label, device in zip(labels, devices, strict=True)
        if device.kind is DeviceKind.ADAPTER
    ]
    legend = ["", "NIC Legend:", "", *names, ""] if names else [""]
    meanings = _LEGEND + (_UALINK_LEGEND if any(machine.ualinks.values()) else "")
    return "\n".join(lines) + "\n" + meanings + "\n".join(legend)


def _labels(machine: Machine) -> list[str]:
    gpus, adapters = len(machine.gpus), len(machine.adapters)
    return [f"GPU{index}" for index in range(gpus)] + [f"NIC{index}" for index in range(adapters)]


def _cell(text: str) -> str:
    return " X " if text == "X" else text


def _affinity(machine: Machine, device: Device) -> list[str]:
    if device.kind is not DeviceKind.GPU:
        return []
    node = machine.node_of(device)
    own = "N/A" if device.numa_id is None else str(device.numa_id)
    return [node.cpus or "N/A", str(node.shown), "", own]


def peer_matrix(machine: Machine, capability: Capability) -> str:
    """Return the matrix of GPUs as ``nvidia-smi topo -p2p`` writes it."""
    gpus = machine.gpus
    labels = [f"GPU{index}" for index in range(len(gpus))]
    lines = ["\t".join([" ", *labels, ""])]
    for label, gpu in zip(labels, gpus, strict=True):
        cells = [peer_status(machine, gpu, other, capability).value for other in gpus]
        lines.append("\t".join([f" {label}", *cells, ""]))
    return "\n".join(lines) + "\n" + _PEER_LEGEND


# Reading.

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_LABEL: Final = re.compile(r"(GPU|NIC)?[\w.\-]+")
_GPU_LINKS: Final = re.compile(r"(NV|UA)(\d{1,3})")
_NIC_NAME: Final = re.compile(r"\s+(NIC\d+):\s+(\S+)\s*")
_MAX_COLUMNS: Final = 1024
_TREE_LEVELS: Final = (Level.PIX, Level.PXB, Level.PHB, Level.NODE)
"""Levels that join devices into groups, the nearest one first."""


class _Row(NamedTuple):
    """A row of the matrix: its label, a word for each column, and what follows them."""

    label: str
    words: list[str]
    rest: list[str]


def parse_matrix(text: str, name: str = "nvidia-smi topo -m") -> Machine:
    """Build a host from the text of ``nvidia-smi topo -m``; raise :class:`TopologyError`.

    The matrix does not show which switches there are: devices that are related by PIX are put below
    one switch, and so on. Links are not known. Nodes that the matrix does not number get numbers
    from the highest one on.
    """
    lines = [_ESCAPES.sub("", line).rstrip() for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if line.split()[:1] == ["GPU0"]), None)
    if start is None:
        raise TopologyError(f"{name}: no line begins with GPU0, as the matrix of topo -m does")
    labels = _columns(lines[start])
    rows = {}
    for line in lines[start + 1 :]:
        row = _row(line, len(labels))
        if row is None or row.label not in labels:
            break
        rows[row.label] = row
    missing = [label for label in labels if label not in rows]
    if missing:
        raise TopologyError(f"{name}: the matrix has no row for {', '.join(missing)}")
    found = (_NIC_NAME.fullmatch(line) for line in lines)
    names = {name[1]: name[2] for name in found if name}
    return _Tree(name, labels, rows, names).machine()


def _columns(line: str) -> list[str]:
    head = line.split("CPU", 1)[0].split()
    if len(head) > _MAX_COLUMNS:
        raise TopologyError(f"a matrix of {len(head)} columns; {_MAX_COLUMNS} are supported")
    return [label for label in head if _LABEL.fullmatch(label)]


def _row(line: str, columns: int) -> _Row | None:
    words = line.split()
    if len(words) <= columns:
        return None
    return _Row(words[0], words[1 : columns + 1], words[columns + 1 :])


def _join(groups: dict[str, str], one: str, other: str) -> None:
    """Make one group of those of two devices; its name is the first device of both."""
    kept, dropped = sorted((groups[one], groups[other]), key=list(groups).index)
    if kept != dropped:
        for label, group in groups.items():
            if group == dropped:
                groups[label] = kept


class _Tree:
    """Builds the tree of a matrix."""

    def __init__(
        self, name: str, labels: list[str], rows: dict[str, _Row], names: dict[str, str]
    ) -> None:
        self._name = name
        self._labels = labels
        self._names = names
        self._rows = rows
        self._levels: dict[tuple[str, str], Level] = {}
        self._links: dict[Level, dict[tuple[str, str], int]] = {
            Level.NVLINK: {},
            Level.UALINK: {},
        }
        for label in labels:
            for other, word in zip(labels, rows[label].words, strict=True):
                self._read(label, other, word)

    def _read(self, first: str, second: str, word: str) -> None:
        if first == second:
            if word != "X":
                raise TopologyError(f"{self._name}: {first} to itself is {word}, not X")
        elif found := _GPU_LINKS.fullmatch(word):
            self._links[Level(found[1])][first, second] = int(found[2])
        elif word in Level.__members__ and word not in ("SELF", "NVLINK", "UALINK"):
            self._levels[first, second] = Level(word)
        else:
            known = "PIX, PXB, PHB, NODE, SYS, and NV or UA with a number"
            raise TopologyError(f"{self._name}: {first} to {second} is {word}; known are {known}")

    def machine(self) -> Machine:
        """Return the host; raise :class:`TopologyError` if the matrix contradicts itself."""
        groups = {level: self._groups(level) for level in _TREE_LEVELS}
        self._check(groups)
        nodes, of = self._nodes(groups[Level.NODE])
        bridges, roots = self._bridges(groups[Level.PHB], of)
        switches, parents = self._switches(groups, roots)
        devices = tuple(self._device(label, parents[label]) for label in self._labels)
        nvlinks, ualinks = (self._named(links) for links in self._links.values())
        settings = Settings(socket_link="")
        return Machine(self._name, nodes, bridges, switches, devices, nvlinks, settings, ualinks)

    def _named(self, links: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """Return links by the names of their devices, each pair once."""
        return {
            (self._names.get(first, first), self._names.get(second, second)): count
            for (first, second), count in links.items()
            if self._labels.index(first) < self._labels.index(second)
        }

    def _groups(self, level: Level) -> dict[str, str]:
        """Return for each device the first one of its group: those joined by this level or nearer.

        Groups with the same NUMA affinity are joined, too, if the matrix says nothing else.
        """
        groups = {label: label for label in self._labels}
        for (one, other), found in self._levels.items():
            if not level < found:
                _join(groups, one, other)
        if level is Level.NODE:
            for one, other in combinations(self._labels, 2):
                if self._affinity(one) == self._affinity(other) is not None:
                    self._join_nodes(groups, one, other)
        return groups

    def _join_nodes(self, groups: dict[str, str], one: str, other: str) -> None:
        """Join the groups of two devices, unless the matrix has a level between their members."""
        members = [[label for label in groups if groups[label] == groups[x]] for x in (one, other)]
        if not any(pair in self._levels for pair in product(*members)):
            _join(groups, one, other)

    def _check(self, groups: dict[Level, dict[str, str]]) -> None:
        """Check that the groups give the levels of the matrix."""
        for (first, second), level in self._levels.items():
            joined = (one for one in _TREE_LEVELS if groups[one][first] == groups[one][second])
            found = next(joined, Level.SYS)
            if found is not level:
                raise TopologyError(
                    f"{self._name}: {first} to {second} is {level.value}, but by other cells of the"
                    f" matrix {found.value}"
                )

    def _nodes(self, groups: dict[str, str]) -> tuple[tuple[NumaNode, ...], dict[str, int]]:
        """Return a NUMA node for each group, and the number of each device's node."""
        firsts = list(dict.fromkeys(groups.values()))
        nodes = []
        for number, first in enumerate(firsts):
            members = [label for label in self._labels if groups[label] == first]
            affinities = (self._affinity(label) for label in members)
            affinity = next((one for one in affinities if one is not None), None)
            cpus = next((found for label in members if (found := self._cpus(label))), "")
            nodes.append(NumaNode(number, cpus, affinity))
        return tuple(nodes), {label: firsts.index(groups[label]) for label in self._labels}

    def _affinity(self, label: str) -> int | None:
        rest = self._rows[label].rest
        return int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else None

    def _cpus(self, label: str) -> str:
        rest = self._rows[label].rest
        return rest[0] if rest and re.fullmatch(r"[\d,\-]+", rest[0]) else ""

    def _bridges(
        self, groups: dict[str, str], nodes: dict[str, int]
    ) -> tuple[tuple[HostBridge, ...], dict[str, str]]:
        firsts = list(dict.fromkeys(groups.values()))
        names = {first: f"bridge{index}" for index, first in enumerate(firsts)}
        bridges = tuple(HostBridge(names[first], nodes[first]) for first in firsts)
        return bridges, {label: names[groups[label]] for label in self._labels}

    def _switches(
        self, groups: dict[Level, dict[str, str]], roots: dict[str, str]
    ) -> tuple[tuple[Switch, ...], dict[str, str]]:
        """Return switches for what is joined by PXB and by PIX, and the parent of each device."""
        switches: list[Switch] = []
        parents = dict(roots)
        inner, outer = groups[Level.PIX], groups[Level.PXB]
        for first in dict.fromkeys(outer.values()):
            members = [label for label in self._labels if outer[label] == first]
            leaves = list(dict.fromkeys(inner[label] for label in members))
            if len(leaves) > 1:
                switches.append(Switch(f"switch{len(switches)}", roots[first]))
                parents |= dict.fromkeys(members, switches[-1].name)
            for leaf in leaves if len(members) > 1 else ():
                switches.append(Switch(f"switch{len(switches)}", parents[leaf]))
                parents |= {x: switches[-1].name for x in members if inner[x] == leaf}
        return tuple(switches), parents

    def _device(self, label: str, parent: str) -> Device:
        is_gpu = label.startswith("GPU")
        kind = DeviceKind.GPU if is_gpu else DeviceKind.ADAPTER
        rest = self._rows[label].rest
        numa_id = int(rest[2]) if is_gpu and len(rest) > 2 and rest[2].isdigit() else None
        return Device(self._names.get(label, label), kind, parent, numa_id=numa_id)
