"""What is asked of every frame, and the blocks of columns that answer it."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from rdmawire.columns.column import OBJECT, Columns, ColumnType, Form
from rdmawire.columns.query import EVERY_FRAME, FrameSelection, Query
from rdmawire.columns.read import Request, Row
from rdmawire.dissect.node import Dissection
from rdmawire.stats.facts import facts

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
_ANYTHING = ColumnType(Form.TEXT, OBJECT, lambda value: value)


class Question(Query):
    """The fields that statistics need, further ones, and the facts of frames that are dissected."""

    def __init__(self, further: Iterable[str] = ()) -> None:
        super().__init__([*_FIELDS, *further])
        self._plain = Query(self.names)
        self.names = [*self.names, FACTS]
        self.fields = [*self.fields, self.fields[0]._replace(name=FACTS, kind=_ANYTHING, plain=[])]

    def also(self, names: Iterable[str]) -> "Question":
        """The same, with further fields."""
        return Question(names)

    def values(self, frame: Dissection) -> list[Any]:
        _, *others = self._plain.values(frame)
        return [max(-_FAR, min(frame.time_ns, _FAR)), *others, facts(frame)]


def blocks(
    path: str | os.PathLike[str], ports: Iterable[int], choice: FrameSelection = EVERY_FRAME
) -> Iterator[Columns]:
    """The columns of a capture, block by block; :class:`CaptureError` after what stands before."""
    return Request(Question(), Row.FRAME, ports, choice).blocks(path)
