"""Topologies of hosts: those of the package, from YAML, and from what other tools print."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from rdmawire.errors import TopologyError
from rdmawire.terminal import closest_names, quote
from rdmawire.topology import SOURCES, Costs, DeviceKind, Iommu, Machine, nearest, parse_matrix
from rdmawire.topology.pci_tree import FoundMachine, parse_lspci, read_sysfs
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import (
    MAX_BYTES,
    Diagnostics,
    Mark,
    NodeError,
    ReportedError,
    ScenarioError,
    listed,
    parse_document,
    shipped_files,
)
from rdmawire.traffic.scenario.model.costs import CostsPlan
from rdmawire.traffic.scenario.model.placement import PlacePlan
from rdmawire.traffic.scenario.model.topology import TopologyPlan
from rdmawire.traffic.scenario.section import Found, Section, read_section

_LSPCI: Final = "-[0000:"
_MATRIX: Final = "GPU0"
_MATRIX_NOTE: Final = "the matrix shows no links, NVLink-C2C, ACS or IOMMU: no rates are known"
_EXPECTED: Final = "expected the text of nvidia-smi topo -m, of lspci -tv, or YAML"


def read_topology(text: str | bytes, source: str = "topology") -> Machine:
    """Read the topology of a host from YAML; ``source`` is its name in messages.

    Raises :class:`ScenarioError` with all its errors.
    """
    machine: Machine = _read(TopologyPlan, text, source).machine
    return machine


def _read(section: type[Section], text: str | bytes, source: str) -> Any:
    """Read a file that is one section; raise :class:`ScenarioError` with all its errors."""
    diagnostics = Diagnostics(source)
    found: Any = None
    try:
        root = parse_document(text, diagnostics)
        found = read_section(section, root, ParseContext(root, diagnostics, dict, {}))
    except (NodeError, ReportedError) as error:
        diagnostics.report(error)
    if found is None or diagnostics:
        raise diagnostics.error()
    return found


def read_costs(text: str | bytes, source: str = "costs") -> Costs:
    """Read constants of the model of costs from YAML; those that are not given are as usual.

    Raises :class:`ScenarioError` with all its errors.
    """
    costs: Costs = _read(CostsPlan, text, source)
    return costs


def open_costs(path: str) -> Costs:
    """Return the constants of a file; raise :class:`TopologyError` if it cannot be read."""
    return read_costs(read_text(path, "constants of costs"), path)


def read_text(path: str, what: str) -> str:
    """Return the text of a file of bounded size; raise :class:`TopologyError` without it."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise TopologyError(f"{quote(path)}: {reason}; expected a file with {what}") from None
    return _text(data, path, f"expected {what}")


def format_costs(costs: Costs, name: str, source: str) -> str:
    """Return constants as the YAML that :func:`read_costs` reads, each with its unit."""
    values = (
        f"{field.name}: {getattr(costs, field.name):.6g}  # {SOURCES[field.name].unit}\n"
        for field in fields(costs)
    )
    return f"costs: {json.dumps(name)}\nsource: {json.dumps(source)}\n{''.join(values)}"


def parse_topology(data: bytes | str, source: str = "topology") -> FoundMachine:
    """Read a host from the text of ``nvidia-smi topo -m``, of ``lspci -tv``, or from YAML.

    Raises :class:`TopologyError` for other data and for a tree that cannot be,
    :class:`ScenarioError` for YAML with errors.
    """
    text = _text(data, source)
    if _LSPCI in text:
        return parse_lspci(text, source)
    if any(line.split()[:1] == [_MATRIX] for line in text.splitlines()):
        return FoundMachine(parse_matrix(text, source), [_MATRIX_NOTE])
    return FoundMachine(read_topology(text, source), [])


def _text(data: bytes | str, source: str, expected: str = _EXPECTED) -> str:
    """Return the text of a file; raise :class:`TopologyError` for what cannot be one."""
    if len(data) > MAX_BYTES:
        raise TopologyError(f"{source}: more than {MAX_BYTES} bytes; {expected}")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or "\0" in text:
        raise TopologyError(f"{source}: {'no text in UTF-8' if data else 'empty'}; {expected}")
    return text


def open_host(source: str) -> FoundMachine:
    """Return a host by a shipped name, a file of :func:`parse_topology`, or a folder as ``/sys``.

    Raises :class:`TopologyError` if there is none, and the errors of :func:`parse_topology`.
    """
    hosts, path = shipped_hosts(), Path(source)
    if not source:
        raise TopologyError(f"the name of the host is empty; shipped hosts are {', '.join(hosts)}")
    if source in hosts:
        return FoundMachine(_shipped_host(source), [])
    if path.is_dir():
        return _running_host(path, hosts)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        near = closest_names(source, hosts)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(hosts)
        raise TopologyError(
            f"{quote(source)}: {reason}; shipped hosts are {known}{meant}"
        ) from None
    return parse_topology(data, source)


def _running_host(folder: Path, hosts: Iterable[str]) -> FoundMachine:
    """Read the devices of a running host; an error names the hosts that are shipped."""
    try:
        return read_sysfs(folder)
    except TopologyError as error:
        raise TopologyError(f"{error}; shipped hosts are {', '.join(hosts)}") from None


@cache
def _shipped_host(name: str) -> Machine:
    return read_topology(shipped_hosts()[name].read_bytes(), name)


def shipped_hosts() -> Mapping[str, Traversable]:
    """Return the file of each shipped host, by name in alphabetical order."""
    return shipped_files("hosts")


# The topology of a scenario's host.


def check_place(plan: PlacePlan, found: Found, context: ParseContext) -> PlacePlan:
    """Return the topology of a scenario's host, with its devices and its settings.

    Raises :class:`NodeError` for a host, a device or a NUMA node that does not exist.
    """
    machine = _with_settings(_host_named(plan.host, found.at("host"), context), plan, found)
    gpu = _chosen(plan.gpu, machine, DeviceKind.GPU, found.at("gpu"))
    near = nearest(machine, machine.device(gpu), DeviceKind.ADAPTER) if gpu else machine.adapters
    wanted = plan.adapter or next((one.name for one in near), "")
    adapter = _chosen(wanted, machine, DeviceKind.ADAPTER, found.at("adapter"))
    if not adapter:
        raise NodeError(found.mark, f"{plan.host} without an adapter", "an RDMA adapter")
    node = machine.bridge_of(machine.device(adapter)).node if plan.node is None else plan.node
    nodes = [one.number for one in machine.nodes]
    if node not in nodes:
        expected = f"a NUMA node of {plan.host}: {listed(map(str, nodes))}"
        raise NodeError(found.at("memory node"), f"NUMA node {node}", expected)
    given = {"machine": machine, "gpu": gpu, "adapter": adapter, "node": node}
    return plan.model_copy(update=given)


def _host_named(name: str, mark: Mark, context: ParseContext) -> Machine:
    """Return a shipped host, or that of a file beside the scenario."""
    hosts = shipped_hosts()
    if name in hosts:
        return _shipped_host(name)
    path = Path(context.diagnostics.source).parent / name
    try:
        if not path.is_file():
            raise FileNotFoundError(name)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):
        expected = f"a shipped host or a file with a host; shipped are {listed(hosts)}"
        raise NodeError(mark, quote(name), expected, word=name, known=hosts) from None
    try:
        return parse_topology(data, name).machine
    except (ScenarioError, TopologyError) as error:
        first = str(error).partition("\n")[0]
        raise NodeError(mark, first, "the file of a host, as rdmawire topo reads it") from None


def _with_settings(machine: Machine, plan: PlacePlan, found: Found) -> Machine:
    """Return a host with the IOMMU, the permission of the firmware, and the ACS of a scenario."""
    switches = [switch.name for switch in machine.switches]
    for name in plan.acs:
        if name not in switches:
            expected = f"a PCIe switch of {plan.host}: {listed(switches)}"
            raise NodeError(found.at("acs"), quote(name), expected, word=name, known=switches)
    settings = machine.settings
    if plan.iommu is not None:
        settings = replace(settings, iommu=Iommu(plan.iommu))
    if plan.peer_to_peer is not None:
        settings = replace(settings, peer_to_peer=plan.peer_to_peer)
    redirecting = tuple(
        replace(one, acs=one.acs or one.name in plan.acs) for one in machine.switches
    )
    return replace(machine, switches=redirecting, settings=settings)


def _chosen(name: str, machine: Machine, kind: DeviceKind, mark: Mark) -> str:
    """Return the name of a device of a kind, by default of the first; empty if there is none."""
    known = [device.name for device in machine.of_kind(kind)]
    if name and name not in known:
        what = f"{kind.value} {quote(name)}"
        raise NodeError(mark, what, f"one of {listed(known)}", word=name, known=known)
    return name or next(iter(known), "")
