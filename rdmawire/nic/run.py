"""Runs of middle packets: nearly all of a long message, taken in one loop.

A frame goes on with a run if its head is the one before's, its PSN the next, its ICRC good, and
what it holds fits the message. Every check of a single packet is made, once for the run where its
answer cannot change. The first frame that differs in anything ends the run, and is taken in alone:
nothing is decided here but that all is well.
"""

from collections.abc import Sequence

from isal.isal_zlib import crc32

from rdmawire.errors import MemoryFault
from rdmawire.nic.inbound import Incoming
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.seal import pack_word
from rdmawire.nic.snapshot import keep
from rdmawire.nic.unseal import Flow
from rdmawire.wire import psn as serial
from rdmawire.wire.icrc import RESIDUE


def take_run(flow: Flow, frames: Sequence[bytes], start: int) -> int:
    """How many frames from ``start`` on were taken in; the first is known to be of this flow."""
    if len(flow.ways) != 1:
        return 0
    qp, role = flow.ways[0]
    if role is None or role.begins or role.ends or not _ready(qp, flow):
        return 0
    incoming = qp.inbound.incoming
    if incoming.family is not role.family:
        return 0
    taken = _place(flow, frames, start, incoming, qp)
    if taken:
        qp.inbound.epsn = serial.add(qp.inbound.epsn, taken)
        qp.inbound.refused = False
    return taken


def _ready(qp: QueuePair, flow: Flow) -> bool:
    """Whether packets of this flow are taken now, and are full.

    Headers that are to be read are to be checked: XRC's packets name their queue one by one.
    """
    read, _, payload, pad, _, _ = flow.layout
    full = read is None and pad - payload == qp.mtu
    return qp.takes_packets and full and not qp.migrating


def _place(
    flow: Flow, frames: Sequence[bytes], start: int, incoming: Incoming, qp: QueuePair
) -> int:
    """Write payloads while frames go on as expected; how many did."""
    _, word, payload, pad, end, crc = flow.layout
    head, length = frames[start][:word], pad - payload
    first, last = payload - word, pad - word
    fits = min((incoming.limit - incoming.placed) // length, len(frames) - start)
    write, offset = incoming.sink.write, incoming.placed
    if qp.inbound.reads:
        keep(qp, incoming.sink, offset, fits * length)
    taken = 0
    for psn in serial.numbers(qp.inbound.epsn, fits):
        frame = frames[start + taken]
        if frame.__class__ is not bytes or len(frame) != end:
            break  # taken in alone, what is no octets is refused
        rest = memoryview(frame)[word:]
        if frame[:payload] != head + pack_word(psn) or crc32(rest, crc) != RESIDUE:
            break
        try:
            write(offset, rest[first:last])
        except MemoryFault:
            break  # taken in alone, the packet meets it again, and all that follows from it
        offset += length
        taken += 1
    incoming.placed = offset
    return taken
