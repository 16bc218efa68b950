"""Live counters of devices: how a service counts, and how another process asks for them."""

import socket
from array import array
from collections.abc import Mapping, Sequence
from errno import EPROTO
from pathlib import Path
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.memory import Region
from rdmawire.verbs_service.context import Context, CqHandle, Object, QueuePairHandle
from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.verbs_service.protocol import CALLS, COUNTERS, MAX_WORDS, version
from rdmawire.verbs_service.service_socket import connected

_CALLS: Final = {call.name: call.number for call in CALLS}
_REPLIES: Final = {call.name: call.reply for call in CALLS}
_WORD: Final = 8
_ANSWER_TIMEOUT: Final = 5.0
"""Seconds in which a service answers, even a busy one."""


def counter_words(device: EmulatedDevice, contexts: Sequence[Context]) -> tuple[int, ...]:
    """The values of :data:`COUNTERS`, in order. ``contexts`` are those of the device."""
    engine, counters = device.nic.device, device.nic.counters
    values = {
        "xmit_packets": engine.xmit_packets,
        "xmit_bytes": engine.xmit_bytes,
        "rcv_packets": engine.rcv_packets,
        "rcv_bytes": engine.rcv_bytes,
        "xmit_discards": engine.xmit_discards,
        "drops": engine.drops.total(),
        "retransmits": counters.local_ack_timeout_err
        + counters.packet_seq_err
        + counters.implied_nak_seq_err,
        "rnr_naks": counters.rcvd_rnr_err,
        "out_of_sequence": counters.out_of_sequence,
        "ecn_marked": counters.np_ecn_marked_roce_packets,
        "cnp_sent": counters.np_cnp_sent,
        "cnp_handled": counters.rp_cnp_handled,
        "contexts": len(contexts),
    }
    tables = {id(table): table for context in contexts for table in context.tables}.values()
    values |= {name: sum(one.counts[kind] for one in tables) for name, kind in _KINDS.items()}
    return tuple(values[name] for name in COUNTERS)


_KINDS: Final[dict[str, type[Object]]] = {
    "qps": QueuePairHandle,
    "cqs": CqHandle,
    "mrs": Region,
}


def read_counters(path: Path) -> dict[str, Mapping[str, int]]:
    """The counters of all devices of a running service, by their names.

    ``OSError`` if none answers at the socket ``path``, ``VerbsError`` if it is of another version
    or of another user, or no verbs service.
    """
    found: dict[str, Mapping[str, int]] = {}
    with connected(path, _ANSWER_TIMEOUT) as sock:
        (count,) = _call(sock, "hello", version())
        for index in range(count):
            _, _, *name = _call(sock, "get_device", index)
            text = array("Q", name).tobytes().rstrip(b"\0").decode(errors="replace")
            values = _call(sock, "read_counters", index)
            found[text] = dict(zip(COUNTERS, values, strict=True))
    return found


def _call(sock: socket.socket, name: str, *arguments: int) -> tuple[int, ...]:
    sock.send(array("Q", (_CALLS[name], *arguments)).tobytes())
    data = sock.recv(_WORD * MAX_WORDS)
    if not data:
        raise ConnectionResetError(f"{name}: the service has closed the connection")
    if len(data) % _WORD:
        raise _no_reply(name, data)
    error, *values = array("Q", data)
    if error:
        reason = data[_WORD:].rstrip(b"\0").decode(errors="replace")
        raise VerbsError(f"{name}: the service refuses: {reason}", error)
    if len(values) != len(_REPLIES[name]):
        raise _no_reply(name, data)
    return tuple(values)


def _no_reply(name: str, data: bytes) -> VerbsError:
    text = f"{name}: {len(data)} bytes are no reply of a verbs service: name another socket"
    return VerbsError(text, EPROTO)
