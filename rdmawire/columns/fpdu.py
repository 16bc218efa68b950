"""Rows for FPDUs: the fields of a frame, parted by the FPDUs that it completes."""

from collections.abc import Iterable
from copy import copy
from typing import Any

from rdmawire.columns.asked import Query
from rdmawire.dissect.node import Dissection, Node
from rdmawire.wire.mpa import FPDULength


def of_fpdus(query: Query, frame: Dissection) -> Iterable[list[Any]]:
    """One row for each FPDU: the fields of its headers, and of those around the TCP segment."""
    before, fpdus = parted(frame.nodes)
    for nodes in fpdus:
        part = copy(frame)
        part.nodes = before + nodes
        yield query.values(part)


def parted(nodes: list[Node]) -> tuple[list[Node], list[list[Node]]]:
    """The nodes before the first FPDU, and those of each FPDU."""
    starts = [at for at, node in enumerate(nodes) if isinstance(node.header, FPDULength)]
    ends = [*starts[1:], len(nodes)] if starts else []
    first = starts[0] if starts else len(nodes)
    return nodes[:first], [nodes[start:end] for start, end in zip(starts, ends, strict=True)]
