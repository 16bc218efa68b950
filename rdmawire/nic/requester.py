"""The requester: send work becomes request packets. IBA 9.7.1 to 9.7.3, 9.8.

It takes the work at the front of ``posted``, gives it PSNs, and sends its packets while nothing
holds it back. What it cannot do locally ends the work with an error, in its turn. It never sees a
response: the completer moves the queue, and here is only what stands in it.
"""

from collections.abc import Callable

from isal.isal_zlib import crc32

from rdmawire.errors import MemoryFault, PageFault
from rdmawire.nic import local_work
from rdmawire.nic.begin import begin, fail, held
from rdmawire.nic.completion import SUCCESS, WCStatus
from rdmawire.nic.extended import extended
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.queue import NO_PSN, Wqe
from rdmawire.nic.seal import Head, Seal, pack_word
from rdmawire.nic.service import Outbound
from rdmawire.nic.work import Answer, Local
from rdmawire.wire import psn as serial


def send(qp: QueuePair, frames: list[bytes], room: int) -> None:
    """Append frames of the work that may go on, until there are ``room`` of them."""
    queue = qp.sq
    posted = queue.posted
    while posted and len(frames) < room:
        wqe = posted[0]
        if wqe.psn == NO_PSN:
            if held(qp, wqe):
                break
            begin(qp, wqe)
        if wqe.status is None and not _done(qp, wqe, frames, room):
            break
        queue.sent.append(posted.popleft())
    qp.retire()
    qp.patience.wait()


def _done(qp: QueuePair, wqe: Wqe, frames: list[bytes], room: int) -> bool:
    """Send packets of one piece of work; whether all are sent, or nothing more can be."""
    try:
        ways = _WAYS if qp.service.outbound else _RAW_WAYS
        ways[wqe.verb.answer](qp, wqe, frames, room)
    except PageFault as fault:
        qp.page_wait.wait(fault.ready)
        return False
    except MemoryFault:
        fail(qp, wqe, WCStatus.LOC_PROT_ERR)
    if wqe.sent < wqe.packets:
        return wqe.status is not None
    if not qp.service.reliable and wqe.status is None:
        qp.sq.pass_by(wqe.packets)
        wqe.status = SUCCESS
    return True


def _message(qp: QueuePair, wqe: Wqe, frames: list[bytes], room: int) -> None:
    """A SEND or WRITE."""
    service = qp.service
    opcodes = service.outbound[wqe.wr.opcode]
    seal = qp.seal if service.connected else qp.seal_for(wqe.wr)
    if wqe.packets > 1:
        _packets(qp, wqe, opcodes, seal, frames, room)
        return
    payload = wqe.source.read(0, wqe.length) if wqe.length else b""
    more = extended(opcodes.headers, qp, wqe) if opcodes.headers else b""
    qp.unasked = qp.ask_after
    qp.sq.advance(wqe, 1)
    frames.append(seal.frame(opcodes.only, wqe.psn | qp.ackreq, more, payload, wqe.se))


def _packets(  # noqa: PLR0917  once a message
    qp: QueuePair, wqe: Wqe, opcodes: Outbound, seal: Seal, frames: list[bytes], room: int
) -> None:
    """The packets of a message: one by one, and those in the middle in runs."""
    last = wqe.packets - 1
    bare = not opcodes.layouts[opcodes.middle].headers  # XRC's say which queue receives
    while wqe.sent <= last:
        left = min(room - len(frames), qp.window_at(wqe))
        if left <= 0:
            return
        run = min(left, last - wqe.sent, qp.unasked) if wqe.sent and bare else 0
        if run > 0:
            _middles(qp, wqe, seal.head(opcodes.middle, qp.mtu), frames, run)
        else:
            frames.append(_packet(qp, wqe, opcodes, seal))


def _middles(qp: QueuePair, wqe: Wqe, head: Head, frames: list[bytes], count: int) -> None:
    """So many full packets that neither begin nor end a message and ask for no ACK."""
    octets, crc = head
    read, mtu, offset = wqe.source.read, qp.mtu, wqe.sent * qp.mtu
    before = len(frames)
    try:
        for psn in serial.numbers(serial.add(wqe.psn, wqe.sent), count):
            word, payload = pack_word(psn), read(offset, mtu)
            icrc = crc32(payload, crc32(word, crc)).to_bytes(4, "little")
            frames.append(b"".join((octets, word, payload, icrc)))
            offset += mtu
    finally:
        qp.sq.advance(wqe, len(frames) - before)
        qp.unasked -= len(frames) - before


def _packet(qp: QueuePair, wqe: Wqe, opcodes: Outbound, seal: Seal) -> bytes:
    """The next packet of a message, whichever it is."""
    index, last = wqe.sent, wqe.packets - 1
    ends = index == last
    opcode = opcodes.at(index, last)
    offset = index * qp.mtu
    length = min(qp.mtu, wqe.length - offset)
    payload = wqe.source.read(offset, length) if length else b""
    headers = opcodes.layouts[opcode].headers
    more = extended(headers, qp, wqe) if headers else b""
    word = serial.add(wqe.psn, index) | qp.ask(ends=ends)
    qp.sq.advance(wqe, 1)
    return seal.frame(opcode, word, more, payload, wqe.se if ends else 0)


def _request(qp: QueuePair, wqe: Wqe, frames: list[bytes], _: int) -> None:
    """A READ, atomic or FLUSH: one packet that asks for what has not been answered."""
    opcodes = qp.service.outbound[wqe.wr.opcode]
    payload = wqe.source.read(0, wqe.length) if wqe.verb.local is Local.SOURCE else b""
    more = extended(opcodes.headers, qp, wqe)
    word = serial.add(wqe.psn, wqe.answered) | qp.ask(ends=True)
    qp.sq.ask(wqe)
    qp.sq.advance(wqe, wqe.packets)
    frames.append(qp.seal.request(opcodes.only, word, more, payload))


def _frame(qp: QueuePair, wqe: Wqe, frames: list[bytes], _: int) -> None:
    """A raw packet: the frame as it stands in memory."""
    frames.append(bytes(wqe.source.read(0, wqe.length)))
    qp.sq.advance(wqe, 1)


_WAYS: dict[Answer, Callable[[QueuePair, Wqe, list[bytes], int], None]] = {
    Answer.ACK: _message,
    Answer.READ: _request,
    Answer.ATOMIC: _request,
    Answer.NOTHING: lambda qp, wqe, _, __: local_work.do(qp, wqe),
}
_RAW_WAYS = {Answer.ACK: _frame}
