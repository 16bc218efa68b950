"""The editor of single frames."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rdmawire.capture.record import LinkType
from rdmawire.decode import PROTOCOLS, Checksum, FrameLayout, Protocols, walk_frame
from rdmawire.decode.checksum import InvariantCRC
from rdmawire.traffic.edit.flow_cache import FlowCache, FlowEdit, head_size
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire.header import Header
from rdmawire.wire.inet import ROCE_PORT


class ChecksumMode(Enum):
    """Which checksums are recomputed."""

    CHANGED = "changed"
    """All that were correct; invalid ones stay invalid."""
    ALL = "all"
    NONE = "none"


@dataclass(slots=True)
class EditCounts:
    """Counts of frames.

    ``changed``: edited ones. ``bad``: with an ICRC that was invalid before, and still is unless all
    are recomputed. ``cut``: with an ICRC that was not captured. ``plain``: with comments that a
    pcap cannot hold. ``written``: those in the new capture, ``None`` without one.
    """

    frames: int = 0
    dropped: int = 0
    changed: int = 0
    bad: int = 0
    cut: int = 0
    plain: int = 0
    written: int | None = None


class ChecksumUpdater:
    """Updates checksums of edited frames, and counts invalid ones; ``plain`` without options."""

    def __init__(
        self, checksum_mode: ChecksumMode, rules: Sequence[EditRule], counts: EditCounts
    ) -> None:
        self.checksum_mode = checksum_mode
        self._counts = counts
        self._overrides: Mapping[type[Header], int] = {
            table: value for rule in rules for table, value in rule.overrides().items()
        }
        self.plain = checksum_mode is ChecksumMode.CHANGED and not self._overrides

    def seal(
        self, checksums: Iterable[tuple[Checksum, int]], old: bytes, new: bytearray, reach: int
    ) -> None:
        """Update checksums; each covers the frame up to its end offset.

        No byte from ``reach`` on has changed, except checksums.
        """
        for checksum, end in checksums:
            self._counts.cut += isinstance(checksum, InvariantCRC) and end > len(old)
            if (
                self.checksum_mode is not ChecksumMode.NONE
                and checksum.adjust(old, new, reach, end) is False
            ):
                self._counts.bad += 1
            if self.checksum_mode is ChecksumMode.ALL:
                checksum.recompute(new, end)
            if checksum.table in self._overrides:
                checksum.put(new, self._overrides[checksum.table], end)


class Draft(NamedTuple):
    """A frame before and after its edit, with checksums not yet updated."""

    data: bytes
    new: bytearray
    layout: FrameLayout


class Editor:
    """Applies rules to frames, and updates their checksums.

    All rules read the original frame; if two set the same field, the later one wins. Lengths and
    the order of headers stay, whatever fields are set to. ``ports`` are the UDP destination ports
    of RoCEv2, ``protocols`` maps protocols to headers. ``counts`` counts ICRCs that were invalid or
    missing.
    """

    def __init__(
        self,
        rules: Sequence[EditRule],
        *,
        checksum_mode: ChecksumMode = ChecksumMode.CHANGED,
        ports: Collection[int] = (ROCE_PORT,),
        protocols: Protocols = PROTOCOLS,
    ) -> None:
        self.rules = tuple(rules)
        self.counts = EditCounts()
        self._ports = frozenset(ports)
        self._protocols = protocols
        self.checksum_updater = ChecksumUpdater(checksum_mode, self.rules, self.counts)
        self._flows: dict[int, FlowCache] = defaultdict(FlowCache)

    def edit(self, data: bytes, link_type: int = LinkType.ETHERNET) -> bytes:
        """Return the edited frame; of a truncated frame, the captured bytes are edited."""
        known = self.edit_known(data, link_type)
        if known is not None:
            return known
        return self.finish(self.draft(data, link_type, self.layout(data, link_type)))

    def edit_known(self, data: bytes, link_type: int) -> bytes | None:
        """Return the edited frame if its flow is known, else ``None``."""
        found = self._flows[link_type].find(data)
        if found is None:
            return None
        flow, head = found
        end = flow.end(data)
        if end < flow.least:
            return None
        new = flow.changed(data, head)
        if self.checksum_updater.plain:
            self._count(flow, flow.seal(data, new, head, end))
        else:
            self.checksum_updater.seal(
                ((each, end) for each in flow.layout.checksums), data, new, flow.reach
            )
        return data if new == data else bytes(new)

    def layout(self, data: bytes, link_type: int) -> FrameLayout:
        """Return the layout of a frame."""
        return walk_frame(data, link_type, roce_ports=self._ports, protocols=self._protocols)

    def draft(
        self, data: bytes, link_type: int, layout: FrameLayout, *, learn: bool = True
    ) -> Draft:
        """Return a frame with its fields edited; with ``learn``, its flow is cached, if any."""
        ops = [op for rule in self.rules for op in rule.ops(layout)]
        size = head_size(layout, self._protocols) if learn else 0
        if size:
            self._flows[link_type].add(layout, size, ops, data)
        new = bytearray(data)
        for op in ops:
            op.run(data, new)
        return Draft(data, new, layout)

    def finish(self, draft: Draft) -> bytes:
        """Return the frame of a draft, with its checksums."""
        checksums = ((each, each.end) for each in draft.layout.checksums)
        self.checksum_updater.seal(checksums, draft.data, draft.new, len(draft.data))
        return draft.data if draft.new == draft.data else bytes(draft.new)

    def _count(self, flow: FlowEdit, was_right: bool | None) -> None:
        if was_right is None:
            self.counts.cut += flow.has_icrc
        elif not was_right:
            self.counts.bad += 1
