"""A responder as a system to learn, on a fresh queue pair for each word.

The peer follows what the responder expects by its replies alone, so that any target can be
learned: a positive reply to a request in sequence moves the expected PSN past it. Where the
service has no replies, each packet of the service does. An output has the replies, the completions
and the memory that changed, separated by commas:

- ``ACK@0`` is a reply, with its PSN from the expected one: -1, 0, 1, else ``old`` or ``new``.
  ``.MSN+1`` after it: one more message is complete. Syndromes that are unusual follow the opcode.
- ``RECV=64`` is a completion with its bytes; ``RECV=WR_FLUSH_ERR`` one with another status.
- ``+receive`` is memory whose bytes changed: a region, the window, a receive, or a guard.
- ``full`` is a receive that is not posted, because its queue already has ``receives`` of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.exchange import Reply
from rdmawire.fuzz.frames import FrameBuilder
from rdmawire.fuzz.inputs import Input, PacketInput, ReceiveInput, WaitInput
from rdmawire.fuzz.learn.responder_alphabet import ALPHABETS, INPUTS, SETUP, USUAL
from rdmawire.fuzz.packet_validation import reply_of
from rdmawire.fuzz.service_model import wire_service
from rdmawire.fuzz.setup import AREAS, ARENA, RECEIVE_SLOT, RECEIVE_SLOTS, RECEIVES, WINDOW, Setup
from rdmawire.fuzz.target import Completion, ObservableTarget, Target
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire import serial
from rdmawire.wire.ib import Ack, Nak
from rdmawire.wire.opcode import SHAPES, Service
from rdmawire.wire.opcode import Operation as Op
from rdmawire.wire.roce import Medium

_ACKNOWLEDGED: Final = (Service.RC << 5, Service.XRC << 5)
"""Services with replies, as the upper bits of an opcode."""
SILENCE: Final = "-"
"""The output of an input that nothing follows."""


class ResponderSystem:
    """The responder of one target. What is not an :class:`ObservableTarget` shows replies alone.

    ``inputs`` are names of :data:`~rdmawire.fuzz.learn.responder_alphabet.INPUTS`, by default
    those of :data:`~rdmawire.fuzz.learn.responder_alphabet.USUAL`. ``setup`` is the queue pair,
    ``receives`` the receives that each of its queues has at most. ``shows_credits`` says whether
    outputs have the credits of ACKs. Raises :class:`FuzzError` for an unknown input, or one that
    the target has no method for.
    """

    def __init__(
        self,
        target: Target,
        inputs: Sequence[str] = (),
        *,
        setup: Setup = SETUP,
        receives: int = 1,
        shows_credits: bool = False,
    ) -> None:
        self._base = wire_service(setup.service) << 5
        self.name, self.setup = target.name, setup
        self.inputs = tuple(inputs) or ALPHABETS[USUAL[setup.service]].inputs
        self.target = target
        self._seen = target if isinstance(target, ObservableTarget) else None
        self._max_receives = receives
        self._shows_credits = shows_credits
        self._path: tuple[object, ...] = ()
        self._check_inputs()

    def _check_inputs(self) -> None:
        for name in self.inputs:
            if name not in INPUTS:
                raise FuzzError(f"no input of a responder is named {name!r}")
            if self._seen is None and not isinstance(INPUTS[name], PacketInput):
                raise FuzzError(f"{self.name} takes packets alone, no input {name}")

    def reset(self) -> None:
        """Make a fresh queue pair."""
        self.target.reset(self.setup)
        path, numbers = self.target.path(self.setup), self.target.numbers(self.setup)
        if (*path, numbers.qpn) != self._path:
            self._builder = FrameBuilder(*path, numbers)
        self._path, self._builder.numbers = (*path, numbers.qpn), numbers
        self._expected, self._msn = self.setup.psn, 0
        self._receives: dict[int, int] = {}
        self._posted = 0
        self._original = b""
        self._memory = b"" if self._seen is None else bytes(self._seen.memory())
        self.played: list[tuple[Input, int]] = []

    def step(self, name: str) -> str:
        """Play one input; return the output."""
        one = INPUTS[name]
        if isinstance(one, PacketInput):
            words = self._packet(self._of_service(one))
        elif isinstance(one, ReceiveInput):
            words = self._receive(one)
        else:
            words = self._waited(one)
        return ",".join([*words, *self._observe()]) or SILENCE

    # Inputs.

    def _of_service(self, one: PacketInput) -> PacketInput:
        """A packet with the opcode of the service, and with bytes that the last one had not."""
        opcode = one.opcode if one.opcode >> 5 else one.opcode | self._base
        return replace(one, opcode=opcode, seed=len(self.played) & 0xFF)

    def _packet(self, one: PacketInput) -> list[str]:
        """Send a packet, and take all replies before the next input.

        Return the words of the output.
        """
        psn = serial.add(self._expected, one.ahead)
        self.played.append((one, psn))
        replies = self.target.send(self._builder.frame(one, psn))
        if self._seen is not None:
            replies += self._seen.wait(0)
        words = self._words(replies, one)
        if self._base in _ACKNOWLEDGED:
            self._follow(replies, psn, _packets(one, self.setup.mtu))
        elif one.opcode & ~31 == self._base and one.opcode in SHAPES:
            self._expected = serial.add(psn, 1)
        return words

    def _receive(self, one: ReceiveInput) -> list[str]:
        assert self._seen is not None
        if list(self._receives.values()).count(one.srq) >= self._max_receives:
            return ["full"]
        if not self._seen.post_receive(one.length, one.srq):
            return ["refused"]
        self._posted += 1
        self._receives[self._posted] = one.srq
        self.played.append((one, 0))
        return ["ok", *self._words(self._seen.wait(0), None)]

    def _waited(self, one: WaitInput) -> list[str]:
        assert self._seen is not None
        self.played.append((one, 0))
        return self._words(self._seen.wait(one.ns), None)

    def _follow(self, replies: list[bytes], sent: int, packets: int) -> None:
        """Expect the PSN after the last one of the request that was answered positively."""
        for reply in self._parsed(replies):
            if reply is None or reply.syndrome >> 5 > Ack.ACK:
                continue
            own = serial.in_window(reply.psn, sent, packets)
            if own and serial.distance(self._expected, reply.psn) >= 0:
                self._expected = serial.add(reply.psn, 1)

    # Outputs.

    def _words(self, replies: list[bytes], one: PacketInput | None) -> list[str]:
        words = [self._word(reply, one) for reply in self._parsed(replies)]
        if one is not None and one.opcode & 31 == Op.RDMA_READ_REQUEST and self._seen is not None:
            words += self._read_data(replies, one)
        return words

    def _parsed(self, replies: list[bytes]) -> list[Reply | None]:
        medium = self._builder.medium
        return [_parsed(frame, self._base, medium) for frame in replies]

    def _word(self, reply: Reply | None, one: PacketInput | None) -> str:
        if reply is None:
            return "damaged"
        text = f"{self._kind(reply)}@{self._relative(reply.psn)}"
        if reply.syndrome >= 0:
            text += self._count_messages(reply.msn)
        if reply.operation == Op.ATOMIC_ACKNOWLEDGE and self._seen is not None:
            text += self._compare_original(reply.data, one)
        return text

    def _kind(self, reply: Reply) -> str:
        """The name of a reply, with a syndrome that does not follow from it."""
        kind = _KINDS.get(reply.operation, f"opcode{reply.operation}")
        ack, value = reply.syndrome >> 5, reply.syndrome & 31
        if reply.syndrome < 0:
            return kind
        if ack == Ack.ACK:
            return f"{kind}.{value}" if self._shows_credits else kind
        if ack == Ack.RNR_NAK:
            shown = "RNR" if value == self.setup.rnr_timer else f"RNR{value}"
        else:
            shown = _NAKS.get(value, f"NAK{value}") if ack == Ack.NAK else f"SYNDROME{ack}"
        return shown if kind == "ACK" else f"{kind}.{shown}"

    def _relative(self, psn: int) -> str:
        ahead = serial.distance(self._expected, psn)
        if -1 <= ahead <= 1:
            return str(ahead)
        return "old" if ahead < 0 else "new"

    def _count_messages(self, msn: int) -> str:
        """Count the messages completed since the last reply, clamped. IBA 9.7.5.1.5."""
        more = serial.distance(self._msn, msn)
        self._msn = msn
        if not more:
            return ""
        return ".MSN+1" if more == 1 else ".MSN-" if more < 0 else ".MSN+"

    def _compare_original(self, data: bytes, one: PacketInput | None) -> str:
        """Say whether an atomic got the value that memory had, or that of the last atomic again."""
        before = self._bytes_of(one, 8) if one is not None else b""
        # The AtomicAckETH is big-endian, memory is little-endian.
        kind = "" if data[::-1] == before else "=last" if data == self._original else "=other"
        self._original = data
        return kind

    def _read_data(self, replies: list[bytes], one: PacketInput) -> list[str]:
        """A word if the responses to a READ have other bytes than the memory it names."""
        data = b"".join(reply.data for reply in self._parsed(replies) if reply is not None)
        return [] if not data or data == self._bytes_of(one, len(data)) else ["other-bytes"]

    def _bytes_of(self, one: PacketInput | None, length: int) -> bytes:
        """The bytes before this input of the memory that a packet names."""
        if one is None:
            return b""
        start = (*AREAS, WINDOW)[one.region].start + one.offset
        return self._memory[start : start + length]

    def _observe(self) -> list[str]:
        """Take the completions, and the parts of memory that changed since the last input."""
        if self._seen is None:
            return []
        words = [self._completion(done) for done in self._seen.completions()]
        memory = bytes(self._seen.memory())
        if memory != self._memory:
            words += _changed(self._memory, memory)
            self._memory = memory
        return words

    def _completion(self, done: Completion) -> str:
        first = next(iter(self._receives_before(done.number)), done.number)
        self._receives.pop(done.number, None)
        opcode = "RECV" if done.opcode is None else done.opcode.name
        text = f"{opcode}={done.length}"
        if done.status is not WCStatus.SUCCESS:
            text = f"RECV={done.status.name}"
        elif done.value:
            text += ".key" if done.value in self._builder.numbers.rkeys else ".imm"
        return text if done.number == first else f"{text}.out-of-order"

    def _receives_before(self, number: int) -> list[int]:
        """The receives of the same queue that are not complete, oldest first."""
        queue = self._receives.get(number)
        return [each for each, other in self._receives.items() if other == queue]


_KINDS: Final[dict[int, str]] = {
    Op.ACKNOWLEDGE: "ACK",
    Op.ATOMIC_ACKNOWLEDGE: "ATOMIC",
    Op.RDMA_READ_RESPONSE_FIRST: "READ_FIRST",
    Op.RDMA_READ_RESPONSE_MIDDLE: "READ_MIDDLE",
    Op.RDMA_READ_RESPONSE_LAST: "READ_LAST",
    Op.RDMA_READ_RESPONSE_ONLY: "READ_ONLY",
}
_NAKS: Final[dict[int, str]] = {
    Nak.PSN_SEQUENCE_ERROR: "NAK_SEQUENCE",
    Nak.INVALID_REQUEST: "NAK_INVALID",
    Nak.REMOTE_ACCESS_ERROR: "NAK_ACCESS",
    Nak.REMOTE_OPERATIONAL_ERROR: "NAK_OPERATION",
}
_OTHERS: Final = tuple(enumerate(AREAS))[1:]


def _parts() -> Iterator[tuple[int, int, str]]:
    """Start, end and name of the parts of the arena, in order; what lies between is a guard."""
    first, window_end = AREAS[0], WINDOW.start + WINDOW.length
    named = [
        (first.start, WINDOW.start, "region0"),
        (WINDOW.start, window_end, "window"),
        (window_end, first.start + first.length, "region0"),
        *((one.start, one.start + one.length, f"region{at}") for at, one in _OTHERS),
        (RECEIVES, RECEIVES + RECEIVE_SLOTS * RECEIVE_SLOT, "receive"),
    ]
    position = 0
    for start, end, name in [*named, (ARENA, ARENA, "guard")]:
        if position < start:
            yield position, start, "guard"
        yield start, end, name
        position = end


_PARTS: Final = tuple(_parts())


@lru_cache(maxsize=1 << 14)
def _parsed(frame: bytes, base: int, medium: Medium) -> Reply | None:
    return reply_of(frame, base, medium)


def _packets(one: PacketInput, mtu: int) -> int:
    """The PSNs of a request: those of the responses to a READ."""
    if one.opcode & 31 != Op.RDMA_READ_REQUEST:
        return 1
    return max(-(-(one.dmalen or 0) // mtu), 1)


def _changed(before: bytes, after: bytes) -> list[str]:
    """The parts of the arena that have other bytes."""
    parts = [name for start, end, name in _PARTS if before[start:end] != after[start:end]]
    return [f"+{name}" for name in dict.fromkeys(parts)]
