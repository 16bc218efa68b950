"""What is asked of every frame, and the blocks of columns that answer it."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rdmawire.analysis.columns.asked import Query
from rdmawire.analysis.columns.column import Columns
from rdmawire.analysis.columns.kind import OBJECT, ColumnKind, Form
from rdmawire.analysis.columns.mixed import MixedReader
from rdmawire.analysis.columns.path import LINK_TYPES
from rdmawire.analysis.columns.walked import of_frame, walked
from rdmawire.analysis.node import Dissection
from rdmawire.analysis.statistics.facts import facts
from rdmawire.capture.columns.mapped import mapped

FACTS = "facts"
"""The column of what only a dissection knows: :class:`~.facts.Facts`, none for plain frames."""

_FIELDS = (
    *("frame.time_epoch", "frame.len", "frame.cap_len"),
    *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.dsfield.ecn", "ipv6.tclass.ecn"),
    *("udp.length", "infiniband.bth.opcode", "infiniband.bth.padcnt"),
    *("infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.reth.dmalen"),
    *("infiniband.aeth.syndrome", "infiniband.deth.srcqp", "infiniband.rdeth.eecnxt"),
)
_FAR = 1 << 62
"""Times further than this from the epoch, some 146 years, are taken to be there: pcapng has any."""
_ANYTHING = ColumnKind(Form.TEXT, OBJECT, lambda value: value)


class Question(Query):
    """The fields that statistics need, and the facts of frames that are dissected."""

    def __init__(self) -> None:
        super().__init__(_FIELDS)
        self._plain = Query(_FIELDS)
        self.names = [*self.names, FACTS]
        self.fields = [*self.fields, self.fields[0]._replace(name=FACTS, kind=_ANYTHING, plain=[])]

    def values(self, frame: Dissection) -> list[Any]:
        time_ns, *others = self._plain.values(frame)
        return [max(-_FAR, min(time_ns, _FAR)), *others, facts(frame)]


def blocks(path: str | os.PathLike[str], ports: Iterable[int]) -> Iterator[Columns]:
    """The columns of a capture, block by block; :class:`CaptureError` after what stands before."""
    query, ports = Question(), tuple(ports)
    with mapped(path) as pcap:
        if pcap is None or pcap.link_type not in LINK_TYPES:
            yield from walked(path, query, ports, of_frame)
        else:
            yield from MixedReader(pcap, query, np.array(ports, np.uint16)).blocks()
