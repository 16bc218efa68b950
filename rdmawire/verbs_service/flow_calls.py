"""The calls of raw packets: queue pairs of RSS, flows and their counters."""

from array import array
from errno import EBUSY, EINVAL, ENOMEM, EOPNOTSUPP
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.ib import FlowCounter, FlowKind, FlowRule, QPInit, QueuePair, RssHash
from rdmawire.ib.port import PORT
from rdmawire.memory.mr_table import AllocatedPD
from rdmawire.verbs import QPCap, QPType
from rdmawire.verbs_service.connection import NO_VALUES, Reply
from rdmawire.verbs_service.context import Context, QueuePairHandle
from rdmawire.verbs_service.flow_specs import parse_specs
from rdmawire.verbs_service.protocol import MAX_RSS_TABLE, RSS_FIELDS, RSS_KEY_BYTES

_DONT_TRAP, _EGRESS = 1 << 1, 1 << 2
_MAX_PRIORITY: Final = 15
"""The last priority of a flow in mlx5."""
_MAX_FLOWS: Final = 1024
"""Flows of a device: each frame of any client is compared with all of them."""
_TOEPLITZ: Final = 1
_KEY_WORDS: Final = RSS_KEY_BYTES // 8


class FlowCalls:
    """Calls of one context, with the names and arguments that the protocol has."""

    _context: Context

    def create_rss_qp(self, pd: int, function: int, fields: int, count: int, *words: int) -> Reply:
        """A queue pair whose flows go to work queues: it has no queues of its own."""
        context = self._context
        context.check_room()
        if function != _TOEPLITZ or fields & ~RSS_FIELDS:
            text = f"rx_hash_function {function}, rx_hash_fields_mask {fields:#x}"
            raise VerbsError(f"{text}: only Toeplitz (1) of fields {RSS_FIELDS:#x}", EOPNOTSUPP)
        ipv4, ipv6, tcp, udp = (fields >> shift & 3 for shift in range(0, 8, 2))
        if (ipv4 and ipv6) or (tcp and udp) or not 0 < count <= MAX_RSS_TABLE:
            text = f"one version of IP, TCP or UDP, and 1 to {MAX_RSS_TABLE} queues"
            raise VerbsError(f"RSS of fields {fields:#x}, {count} queues: not {text}", EINVAL)
        hashing = RssHash(fields, array("Q", words[:_KEY_WORDS]).tobytes())
        handles = array("I", array("Q", words[_KEY_WORDS:]).tobytes())[:count]
        queues = tuple(self._work_queue(handle) for handle in handles)
        _, cq, _ = context.device.xrc_target_queues
        init = QPInit(context.find(pd, AllocatedPD), cq, cq, QPCap(0, 0, 0, 0))
        qp = context.nic.create_qp(QPType.RAW_PACKET, init)
        context.device.openers[qp] += 1
        context.rss_users.update(queues)
        return Reply((context.add(QueuePairHandle(qp, (queues, hashing))), qp.qp_num))

    def _work_queue(self, handle: int) -> QueuePair:
        owner = self._context.find(handle, QueuePairHandle)
        if owner.rss is not None or owner.qp.type is not QPType.RAW_PACKET:
            raise VerbsError(f"QP {owner.qp.qp_num:#x} is no work queue", EINVAL)
        return owner.qp

    def create_flow(self, *words: int) -> Reply:
        qp, kind, priority, port, flags, count, size, *specifications = words
        context = self._context
        context.check_room()
        if context.nic.flow_count >= _MAX_FLOWS:
            raise VerbsError(f"the device has {_MAX_FLOWS} flows, the maximum", ENOMEM)
        _check_flow(kind, priority, port, flags, count)
        owner = context.find(qp, QueuePairHandle)
        data = array("Q", specifications).tobytes()[:size]
        specs = parse_specs(data, count, lambda handle: context.find(handle, FlowCounter))
        if owner.rss is not None:
            specs["rss"], specs["hashing"] = owner.rss
        specs |= {"priority": priority, "kind": FlowKind(kind), "dont_trap": bool(flags)}
        rule = context.nic.create_flow(FlowRule(owner.qp, **specs))
        if rule.counter is not None:
            context.counter_users[rule.counter] += 1
        return Reply((context.add(rule),))

    def destroy_flow(self, flow: int) -> Reply:
        self._context.destroy_flow(flow, self._context.find(flow, FlowRule))
        return NO_VALUES

    def create_counters(self) -> Reply:
        self._context.check_room()
        return Reply((self._context.add(FlowCounter()),))

    def destroy_counters(self, counters: int) -> Reply:
        context = self._context
        found = context.find(counters, FlowCounter)
        if context.counter_users[found]:
            raise VerbsError(f"counters {counters} are used by a flow", EBUSY)
        context.remove(counters)
        del context.counter_users[found]
        return NO_VALUES

    def read_flow_counters(self, counters: int) -> Reply:
        found = self._context.find(counters, FlowCounter)
        return Reply((found.packets, found.bytes))


def _check_flow(kind: int, priority: int, port: int, flags: int, count: int) -> None:
    """Check ``ibv_flow_attr`` as Linux and mlx5 do, with their errnos."""
    if flags & _EGRESS:
        raise VerbsError("flows of frames that are sent (EGRESS) are not supported", EOPNOTSUPP)
    if kind > max(FlowKind) or port != PORT or flags & ~_DONT_TRAP:
        text = f"flow of type {kind} on port {port} with flags {flags:#x}"
        allowed = f"types 0 to {max(FlowKind)}, port {PORT} and DONT_TRAP ({_DONT_TRAP})"
        raise VerbsError(f"{text}: there are {allowed}", EINVAL)
    if kind != FlowKind.NORMAL and count:
        raise VerbsError(f"a flow of type {kind} has no specifications", EINVAL)
    if priority > _MAX_PRIORITY:
        raise VerbsError(f"flow priority {priority}: at most {_MAX_PRIORITY}", ENOMEM)
