"""The walk of an edit finds the headers that a dissection finds, at the same bytes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmawire.dissect.node import Dissection
from rdmawire.traffic.edit.iwarp import INSIDE
from rdmawire.traffic.edit.walk import layout_of
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC
from rdmawire.wire.inet import PFC, MACControlOpcode, Pause
from rdmawire.wire.tables import tables_of
from tests.traffic.edit.samples import FILES, dissected, records

CHECKSUMS = (ICRC, VCRC)
STREAMS: tuple[type[Header], ...] = (*INSIDE, *tables_of("mpa"))
PAUSES = (MACControlOpcode, Pause, PFC)

_OTHERS: tuple[type[Header], ...] = (*CHECKSUMS, *STREAMS, *PAUSES)
"""What an edit takes for seals, what is the business of its streams, and what it leaves alone."""

_Found = tuple[int, type[Header]]


def headers_of(found: Dissection) -> Iterator[_Found]:
    """Where headers stand in the frame itself; records put together of several do not."""
    for node in found.nodes:
        if node.header is not None and not node.reassembled:
            yield node.offset, type(node.header)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_both_walks_find_the_same_headers(path: Path) -> None:
    content = records(path)
    for one, found in zip(content, dissected(content), strict=True):
        places = layout_of(one.data, one.link_type).places
        known = {each for each in headers_of(found) if not issubclass(each[1], _OTHERS)}
        assert {(offset, type(header)) for offset, header in places} == known
