"""What display filters make of the records of a capture that is edited."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from rdmawire.analysis.dissector import Dissector
from rdmawire.capture import Reader, Record
from rdmawire.traffic.edit.copy import Choose, Fate

if TYPE_CHECKING:
    from rdmawire.analysis.filter import Filter


class Fates:
    """Decides by filters which frames are edited, and which are dropped; counts what passed.

    ``keep`` drops all frames that do not pass it, ``drop`` those that do.
    """

    def __init__(
        self,
        edit: "Filter | None",
        keep: "Filter | None",
        drop: "Filter | None",
        ports: Collection[int],
    ) -> None:
        self._edit = edit
        self._keep = keep
        self._drop = drop
        self._ports = ports

    def __call__(self, reader: Reader) -> Choose | None:
        """What decides about the records of this capture; nothing if all are edited."""
        if self._edit is None and self._keep is None and self._drop is None:
            return None
        dissector = Dissector(self._ports)

        def choose(record: Record) -> Fate:
            frame = dissector.record(record, reader)
            if self._keep is not None and not self._keep(frame):
                return Fate.DROP
            if self._drop is not None and self._drop(frame):
                return Fate.DROP
            return Fate.EDIT if self._edit is None or self._edit(frame) else Fate.LEAVE

        return choose
