"""The edit of frames, one after the other."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from rdmawire.capture.linktype import LinkType
from rdmawire.traffic.edit.flow import Flow, Flows
from rdmawire.traffic.edit.place import Layout
from rdmawire.traffic.edit.rule import Rule
from rdmawire.traffic.edit.seal import InvariantCRC, Seal, Sealing
from rdmawire.traffic.edit.steps import layout_of
from rdmawire.traffic.edit.tally import Tally
from rdmawire.wire.header import Header
from rdmawire.wire.inet import ROCE_PORT


class Draft(NamedTuple):
    """A frame as it was, and as it is to be but for its checksums."""

    octets: bytes
    new: bytearray
    layout: Layout


class Editor:
    """Applies rules to frames, and makes their checksums fit.

    All rules read a frame as it was; of two that set a field, the later one counts. Lengths, and
    what follows what, stay as they are, whatever fields are set to. ``ports`` are the UDP
    destination ports of RoCEv2. What was done is counted in ``tally``.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        sealing: Sealing = Sealing.CHANGED,
        ports: Collection[int] = (ROCE_PORT,),
    ) -> None:
        self.rules = tuple(rules)
        self.tally = Tally()
        self._ports = frozenset(ports)
        self._sealing = sealing
        self._overrides: Mapping[type[Header], int] = {
            table: value for rule in rules for table, value in rule.overrides().items()
        }
        self._plain = sealing is Sealing.CHANGED and not self._overrides
        self._flows: dict[int, Flows] = defaultdict(Flows)

    def edit(self, octets: bytes, link_type: int = LinkType.ETHERNET) -> bytes:
        """What becomes of a frame; of one that the capture cut short, of what is there."""
        known = self.edit_known(octets, link_type)
        return self.finish(self.draft(octets, link_type)) if known is None else known

    def edit_known(self, octets: bytes, link_type: int) -> bytes | None:
        """What becomes of a frame of a flow that has been met; ``None`` for others."""
        found = self._flows[link_type].find(octets)
        if found is None:
            return None
        flow, head = found
        end = flow.end(octets)
        if end < flow.least:
            return None
        new = flow.changed(octets, head)
        if self._plain:
            self._count(flow, flow.seal(octets, new, head, end))
        else:
            self._seal(((seal, end) for seal in flow.seals), octets, new, flow.reach)
        return self._done(octets, new)

    def draft(self, octets: bytes, link_type: int, *, learn: bool = True) -> Draft:
        """A frame with its fields changed; its flow is kept, if it is to ``learn`` and has one."""
        layout = layout_of(octets, link_type, self._ports)
        ops = [op for rule in self.rules for op in rule.ops(layout)]
        if layout.head and learn:
            self._flows[link_type].add(layout, ops, octets)
        new = bytearray(octets)
        for op in ops:
            op.run(octets, new)
        return Draft(octets, new, layout)

    def finish(self, draft: Draft) -> bytes:
        """The frame that a draft becomes, with its checksums."""
        seals = ((seal, seal.end) for seal in draft.layout.seals)
        self._seal(seals, draft.octets, draft.new, len(draft.octets))
        return self._done(draft.octets, draft.new)

    def _count(self, flow: Flow, was_right: bool | None) -> None:
        if was_right is None:
            self.tally.cut += flow.has_icrc
        elif not was_right:
            self.tally.bad += 1

    def _seal(
        self, seals: Iterable[tuple[Seal, int]], old: bytes, new: bytearray, reach: int
    ) -> None:
        """Make checksums fit, each of which covers what ends at an octet, as it is asked for."""
        for seal, end in seals:
            self.tally.cut += isinstance(seal, InvariantCRC) and end > len(old)
            if self._sealing is not Sealing.NONE and seal.keep(old, new, reach, end) is False:
                self.tally.bad += 1
            if self._sealing is Sealing.ALL:
                seal.renew(new, end)
            if seal.table in self._overrides:
                seal.put(new, self._overrides[seal.table], end)

    def _done(self, octets: bytes, new: bytearray) -> bytes:
        if new == octets:
            return octets
        self.tally.changed += 1
        return bytes(new)
