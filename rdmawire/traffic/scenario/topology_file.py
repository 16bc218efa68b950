"""Topologies of hosts: those of the package, from YAML, and from what other tools print."""

from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from rdmawire.errors import TopologyError
from rdmawire.terminal import closest_names, quote
from rdmawire.topology import Machine, parse_matrix
from rdmawire.topology.pci_tree import FoundMachine, parse_lspci, read_sysfs
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import (
    MAX_BYTES,
    Diagnostics,
    NodeError,
    ReportedError,
    parse_document,
    shipped_files,
)
from rdmawire.traffic.scenario.model.topology import TopologyPlan
from rdmawire.traffic.scenario.section import read_section

_LSPCI: Final = "-[0000:"
_MATRIX: Final = "GPU0"
_MATRIX_NOTE: Final = "the matrix shows no links, NVLink-C2C, ACS or IOMMU: no rates are known"
_EXPECTED: Final = "expected the text of nvidia-smi topo -m, of lspci -tv, or YAML"


def read_topology(text: str | bytes, source: str = "topology") -> Machine:
    """Read the topology of a host from YAML; ``source`` is its name in messages.

    Raises :class:`ScenarioError` with all its errors.
    """
    diagnostics = Diagnostics(source)
    plan: TopologyPlan | None = None
    try:
        root = parse_document(text, diagnostics)
        plan = read_section(TopologyPlan, root, ParseContext(root, diagnostics, dict, {}))
    except (NodeError, ReportedError) as error:
        diagnostics.report(error)
    if plan is None or diagnostics:
        raise diagnostics.error()
    machine: Machine = plan.machine
    return machine


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


def _text(data: bytes | str, source: str) -> str:
    """Return the text of a file; raise :class:`TopologyError` for what cannot be a host."""
    if len(data) > MAX_BYTES:
        raise TopologyError(f"{source}: more than {MAX_BYTES} bytes; {_EXPECTED}")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or "\0" in text:
        raise TopologyError(f"{source}: {'no text in UTF-8' if data else 'empty'}; {_EXPECTED}")
    return text


def open_host(source: str) -> FoundMachine:
    """Return a host by a shipped name, a file of :func:`parse_topology`, or a folder as ``/sys``.

    Raises :class:`TopologyError` if there is none, and the errors of :func:`parse_topology`.
    """
    hosts, path = shipped_hosts(), Path(source)
    if source in hosts:
        return FoundMachine(read_topology(hosts[source].read_bytes(), source), [])
    if path.is_dir():
        return read_sysfs(path)
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


def shipped_hosts() -> Mapping[str, Traversable]:
    """Return the file of each shipped host, by name in alphabetical order."""
    return shipped_files("hosts")
