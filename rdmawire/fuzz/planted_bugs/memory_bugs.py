"""Planted bugs of memory access: keys, rights, ranges, lengths, atomics, and where payload goes."""

from rdmawire.fuzz.planted_bugs.bug import PlantedBug, after, no_check, with_step
from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import AtomicResponse
from rdmawire.ib.rules import WRITE, RequestRule
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault
from rdmawire.memory.key import KeyFault
from rdmawire.verbs.sge import NOTHING, gather, piece
from rdmawire.wire.ib import FETH, RETH, AtomicETH

_NO_RIGHTS = 0
_BITS_32 = (1 << 32) - 1


def _grant(qp: QueuePair, key: int, va: int, length: int, access: int) -> Fault | None:
    """Check a key as the adapter does, without a report of the refusal."""
    granted = qp.device.keys.check(key, qp.pd, va, length, access, qp.qp_num)
    if isinstance(granted, KeyFault):
        return Fault.RKEY
    qp.inbound.target = piece(granted, va, length)
    return None


def _any_right(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    reth = request.extended[role.places[RETH]]
    if not reth.dmalen:
        return checks.check_rkey(qp, role, request)
    return _grant(qp, reth.rkey, reth.va, reth.dmalen, _NO_RIGHTS)


def _range_too_long(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Allow one byte more than the region has; it is written after the region."""
    reth = request.extended[role.places[RETH]]
    region = qp.device.keys.find(reth.rkey)
    if region is None or not reth.dmalen or reth.va + reth.dmalen != region.end + 1:
        return checks.check_rkey(qp, role, request)
    fault = _grant(qp, reth.rkey, reth.va, reth.dmalen - 1, role.access)
    qp.inbound.target = qp.inbound.target if fault else piece(region, reth.va, reth.dmalen)
    return fault


def _range_from_any_start(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Take an address before the region as its first."""
    reth = request.extended[role.places[RETH]]
    region = qp.device.keys.find(reth.rkey)
    if region is None or not reth.dmalen or not region.iova - 16 <= reth.va < region.iova:
        return checks.check_rkey(qp, role, request)
    return _grant(qp, reth.rkey, region.iova, reth.dmalen, role.access)


def _start_alone(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Check the first byte, not the length."""
    reth = request.extended[role.places[RETH]]
    region = qp.device.keys.find(reth.rkey)
    if region is None or not reth.dmalen:
        return checks.check_rkey(qp, role, request)
    length = min(reth.dmalen, max(region.end - reth.va, 1))
    return _grant(qp, reth.rkey, reth.va, length, role.access)


def _any_variant(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Compare the index of a key, and not the eight bits of its variant."""
    reth = request.extended[role.places[RETH]]
    keys = (reth.rkey & ~0xFF | variant for variant in range(256))
    key = next((key for key in keys if qp.device.keys.find(key) is not None), reth.rkey)
    if not reth.dmalen:
        return checks.check_rkey(qp, role, request)
    return _grant(qp, key, reth.va, reth.dmalen, role.access)


def _key_of_nothing(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Check the key of a request for no bytes, too."""
    reth = request.extended[role.places[RETH]]
    if reth.dmalen:
        return checks.check_rkey(qp, role, request)
    fault = _grant(qp, reth.rkey, reth.va, 0, role.access)
    qp.inbound.target = NOTHING
    return fault


def _atomic_by_any_right(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    header = request.extended[-1]
    if header.va % 8:
        return Fault.MISALIGNED
    return _grant(qp, header.rkey, header.va, 8, _NO_RIGHTS)


def _atomic_anywhere(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Aligned to four bytes is enough: the lower bits of the address are ignored."""
    header = request.extended[-1]
    if header.va % 4:
        return Fault.MISALIGNED
    return _grant(qp, header.rkey, header.va & ~7, 8, role.access)


def _flush_without_right(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    feth, reth = request.extended[role.places[FETH]], request.extended[role.places[RETH]]
    if not feth.plt or feth.sel > 1:
        return Fault.OP_VALID
    region = qp.device.keys.find(reth.rkey)
    if feth.sel == 1 and region is not None:
        return _grant(qp, reth.rkey, region.iova, region.length, _NO_RIGHTS)
    return _grant(qp, reth.rkey, reth.va, reth.dmalen, _NO_RIGHTS)


def _short_writes(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A WRITE may end before all announced bytes came."""
    incoming = qp.inbound.incoming
    end = incoming.placed + len(request.payload)
    return role.family.too_long if end > incoming.limit else None


def _long_writes(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A WRITE may bring more bytes than were announced."""
    incoming = qp.inbound.incoming
    if role.family is not WRITE:
        return checks.check_message_length(qp, role, request)
    short = role.ends and incoming.placed + len(request.payload) < incoming.limit
    return Fault.LENGTH if short else None


def _empty_last(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A last packet may be empty."""
    length = len(request.payload)
    fits = length <= qp.mtu if role.ends else length == qp.mtu
    return None if fits else Fault.LENGTH


def _short_middle(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """First and middle packets may be shorter than the path MTU."""
    length = len(request.payload)
    return None if length <= qp.mtu and (length or role.begins) else Fault.LENGTH


def _any_size(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Only and last packets may be longer than the path MTU."""
    length = len(request.payload)
    fits = (length or role.begins) if role.ends else length == qp.mtu
    return None if fits else Fault.LENGTH


def _cut_to_receive(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Cut a SEND to the length of its receive, without an error."""
    sink = gather(qp.device.keys, qp.recv_pd, qp.inbound.recv.sges, 0)
    if isinstance(sink, KeyFault):
        return Fault.LOCAL
    return execute.place_whole(qp, role, request._replace(payload=request.payload[: sink.length]))


def _pad_too(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Write the pad to memory as if it were payload."""
    incoming = qp.inbound.incoming
    payload = request.payload
    fault = execute.place(qp, role, request)
    if fault is None and len(payload) % 4 and incoming.placed < incoming.limit:
        incoming.sink.write(incoming.placed, b"\0")
    return fault


def _pad_of_sends(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    pad = bytes(-len(request.payload) % 4)
    fault = execute.place_whole(qp, role, request._replace(payload=request.payload + pad))
    return execute.place_whole(qp, role, request) if fault else None


def _compares_32_bits(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    eth = request.extended[role.places[AtomicETH]]
    memory, address, *_ = qp.inbound.target
    now = int.from_bytes(memory.read(address, 8), "little")
    if (now ^ eth.cmpdt) & _BITS_32:
        return execute.compare_swap(qp, role, request)
    return execute.compare_swap(qp, role, _with_atomic(request, role, cmpdt=now))


def _with_atomic(request: Arrival, role: RequestRule, **values: int) -> Arrival:
    """Return a request whose AtomicETH has other values."""
    extended = list(request.extended)
    index = role.places[AtomicETH]
    extended[index] = extended[index].replace(**values)
    return request._replace(extended=tuple(extended))


def _always_swaps(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    memory, address, *_ = qp.inbound.target
    now = int.from_bytes(memory.read(address, 8), "little")
    return execute.compare_swap(qp, role, _with_atomic(request, role, cmpdt=now))


def _adds_32_bits(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    eth = request.extended[role.places[AtomicETH]]
    lower = eth.swapdt & _BITS_32
    return execute.fetch_add(qp, role, _with_atomic(request, role, swapdt=lower))


def _new_value(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """Return the value after the operation, in place of the one before."""
    memory, address, *_rest = qp.inbound.target
    answer = qp.inbound.pending[-1]
    if isinstance(answer, AtomicResponse):
        answer.original = int.from_bytes(memory.read(address, 8), "little")


BUGS = (
    PlantedBug(
        "any-access-right",
        "remote READs and WRITEs need no right of the region",
        "IBA 9.7.4.1.5",
        with_step(checks.check_rkey, _any_right),
    ),
    PlantedBug(
        "range-one-too-long",
        "a request may name one byte after the end of the region",
        "IBA 9.7.4.1.5",
        with_step(checks.check_rkey, _range_too_long),
    ),
    PlantedBug(
        "range-from-any-start",
        "an address up to 16 bytes before the region is taken as its first",
        "IBA 9.7.4.1.5",
        with_step(checks.check_rkey, _range_from_any_start),
    ),
    PlantedBug(
        "range-by-first-byte",
        "the first byte of a range is checked, the length is not",
        "IBA 9.7.4.1.5",
        with_step(checks.check_rkey, _start_alone),
    ),
    PlantedBug(
        "any-key-variant",
        "the lower eight bits of an R_Key are not compared",
        "IBA 10.6.3.3",
        with_step(checks.check_rkey, _any_variant),
    ),
    PlantedBug(
        "key-of-nothing",
        "the R_Key of a request for no bytes is checked",
        "IBA 9.7.4.1.5",
        with_step(checks.check_rkey, _key_of_nothing),
    ),
    PlantedBug(
        "atomic-without-right",
        "an atomic needs no right of the region",
        "IBA 9.7.4.1.5",
        with_step(checks.check_atomic_rkey, _atomic_by_any_right),
    ),
    PlantedBug(
        "atomic-aligned-to-four",
        "the address of an atomic need not be a multiple of eight",
        "IBA 9.4.5",
        with_step(checks.check_atomic_rkey, _atomic_anywhere),
    ),
    PlantedBug(
        "flush-without-right",
        "a FLUSH needs no right of the region or queue pair",
        "IBA A19.4",
        with_step(checks.check_flush_rkey, _flush_without_right),
    ),
    PlantedBug(
        "no-queue-pair-rights",
        "the access flags of the queue pair are not checked",
        "IBA 9.7.4.1.4",
        with_step(checks.check_op_valid, no_check),
    ),
    PlantedBug(
        "short-writes",
        "a WRITE may end before all bytes that it announced",
        "IBA 9.7.4.1.6",
        with_step(checks.check_message_length, _short_writes),
    ),
    PlantedBug(
        "long-writes",
        "a WRITE may write more bytes than it announced",
        "IBA 9.7.4.1.6",
        with_step(checks.check_message_length, _long_writes),
    ),
    PlantedBug(
        "any-dma-length",
        "RETH.dmalen of a WRITE is not compared with the payload",
        "IBA 9.7.4.1.6",
        with_step(checks.check_dmalen, checks.check_max_dmalen),
    ),
    PlantedBug(
        "no-limit-of-dma-length",
        "RETH.dmalen may exceed 2**31",
        "IBA 9.7.4.1.6",
        with_step(checks.check_max_dmalen, no_check),
    ),
    PlantedBug(
        "empty-last-packet",
        "the last packet of a message may be empty",
        "IBA 9.7.4.1.6",
        with_step(checks.check_length, _empty_last),
    ),
    PlantedBug(
        "short-middle-packet",
        "first and middle packets may be shorter than the path MTU",
        "IBA 9.7.4.1.6",
        with_step(checks.check_length, _short_middle),
    ),
    PlantedBug(
        "longer-than-mtu",
        "only and last packets may be longer than the path MTU",
        "IBA 9.7.4.1.6",
        with_step(checks.check_length, _any_size),
    ),
    PlantedBug(
        "send-cut-to-receive",
        "a SEND longer than its receive is cut, without an error",
        "IBA 9.7.4.1.6",
        with_step(execute.place_whole, _cut_to_receive),
    ),
    PlantedBug(
        "pad-of-writes",
        "a byte of the pad of a WRITE is written after the payload",
        "IBA 9.2.5",
        with_step(execute.place, _pad_too),
    ),
    PlantedBug(
        "pad-of-sends",
        "the pad of a SEND is written after the payload",
        "IBA 9.2.5",
        with_step(execute.place_whole, _pad_of_sends),
    ),
    PlantedBug(
        "compares-32-bits",
        "COMPARE SWAP compares the lower 32 bits alone",
        "IBA 9.4.5.1",
        with_step(execute.compare_swap, _compares_32_bits),
    ),
    PlantedBug(
        "always-swaps",
        "COMPARE SWAP swaps whether the values are equal or not",
        "IBA 9.4.5.1",
        with_step(execute.compare_swap, _always_swaps),
    ),
    PlantedBug(
        "adds-32-bits",
        "FETCH ADD adds the lower 32 bits of the operand",
        "IBA 9.4.5.2",
        with_step(execute.fetch_add, _adds_32_bits),
    ),
    PlantedBug(
        "new-value-of-atomic",
        "FETCH ADD returns the value after the addition",
        "IBA 9.4.5.2",
        after(execute.fetch_add, _new_value),
    ),
    PlantedBug(
        "key-stays-valid",
        "SEND with Invalidate invalidates nothing",
        "IBA 9.4.1.1.1",
        with_step(execute.invalidate, no_check),
    ),
)
