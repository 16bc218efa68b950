"""The matrices of nvidia-smi: written, and read again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import TopologyError
from rdmawire.topology import Capability, Machine, parse_matrix, peer_matrix, topology_matrix
from tests.topology.machines import machines

REAL = """\
\x1b[4m        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity\x1b[0m
GPU0     X      NV8     NV8     NV8     PIX     SYS     0-47,96-143     0
GPU1    NV8      X      NV8     NV8     PXB     SYS     0-47,96-143     0
GPU2    NV8     NV8      X      NV8     SYS     PIX     48-95,144-191   1
GPU3    NV8     NV8     NV8      X      SYS     PHB     48-95,144-191   1
NIC0    PIX     PXB     SYS     SYS      X      SYS
NIC1    SYS     SYS     PIX     PHB     SYS      X

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""


def cells(text: str) -> list[list[str]]:
    """The words of the matrix, without the processors of the last columns."""
    lines = text.split("\n\nLegend", maxsplit=1)[0].splitlines()
    columns = len(re.findall(r"(?:GPU|NIC)\d", lines[0]))
    return [line.split()[: columns + 1] for line in lines[1:]]


def test_a_printed_matrix_is_read_and_written_again() -> None:
    machine = parse_matrix(REAL)
    names = [device.name for device in machine.devices]
    assert names == ["GPU0", "GPU1", "GPU2", "GPU3", "mlx5_0", "mlx5_bond_0"]
    assert cells(topology_matrix(machine)) == cells(REAL)
    assert "0-47,96-143\t0\t\tN/A" in topology_matrix(machine)
    assert "  NIC1: mlx5_bond_0\n" in topology_matrix(machine)


@given(machines())
def test_any_matrix_is_read_and_written_again(machine: Machine) -> None:
    text = topology_matrix(machine)
    again = topology_matrix(parse_matrix(text))
    assert cells(again) == cells(text)


def test_devices_of_one_node_that_are_shown_as_far_apart() -> None:
    text = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tSYS\t0-55\t0\t\tN/A
GPU1\tSYS\t X \t0-55\t0\t\tN/A
"""
    machine = parse_matrix(text)
    assert cells(topology_matrix(machine)) == cells(text)
    assert [node.shown for node in machine.nodes] == [0, 0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU0     X  ", "GPU0    PIX ", "GPU0 to itself is PIX, not X"),
        ("PXB     SYS     0-47", "FAR     SYS     0-47", "GPU1 to NIC0 is FAR; known are PIX"),
        ("GPU3    NV8", "GPU9    NV8", "the matrix has no row for GPU3"),
        ("PIX     PXB     SYS", "NODE     PXB     SYS", "NIC0 to GPU0 is NODE, but by other cells"),
        ("GPU0", "gpu", "no line begins with GPU0"),
    ],
)
def test_a_matrix_that_cannot_be(old: str, new: str, message: str) -> None:
    assert old in REAL
    with pytest.raises(TopologyError, match=message):
        parse_matrix(REAL.replace(old, new))


@given(st.text("GPU0123NIC XSYPBHD\n\t", max_size=300))
def test_other_text_is_refused(text: str) -> None:
    try:
        parse_matrix(f"        GPU0 GPU1\n{text}")
    except TopologyError:
        return
    assert "X" in text


@given(machines(), st.sampled_from(Capability))
def test_peers_are_symmetric(machine: Machine, capability: Capability) -> None:
    lines = peer_matrix(machine, capability).split("\n\nLegend")[0].splitlines()[1:]
    rows = [line.split("\t")[1:-1] for line in lines]
    assert rows == [list(column) for column in zip(*rows, strict=True)]
    assert all(rows[i][i] == "X" for i in range(len(rows)))
