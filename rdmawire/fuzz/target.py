"""Targets of fuzzing: adapters that receive frames and send frames.

A :class:`Target` receives and sends frames, so that an adapter in another process or on a wire can
be fuzzed. It says where its queue pair and its memory are, and its memory begins with known bytes.
An :class:`ObservableTarget` also shows its memory and completions, so that more bugs are found.
"""

from typing import Final, NamedTuple, Protocol, runtime_checkable

from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.inputs import WorkInput
from rdmawire.fuzz.setup import Setup
from rdmawire.terminal import plural
from rdmawire.validate import BytesLike
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPState, WCOpcode, WCStatus


@runtime_checkable
class Target(Protocol):
    """Something that receives frames and answers with frames.

    Its queue pair has no receives, unless it is an :class:`ObservableTarget`.
    """

    @property
    def name(self) -> str:
        """A name for reports."""
        ...

    def reset(self, setup: Setup) -> None:
        """Make a fresh queue pair, as ``setup`` says, to the peer PEER_QPN.

        The memory is again :data:`rdmawire.fuzz.setup.FRESH_ARENA`, with the regions AREAS and the
        memory window WINDOW. An XRC target has the shared receive queues SHARED_QUEUES, empty.
        """
        ...

    def numbers(self, setup: Setup) -> Numbers:
        """Return the QPN, addresses and keys that a peer needs, after :meth:`reset`."""
        ...

    def path(self, setup: Setup) -> tuple[AddressHandle, bytes]:
        """Return the peer's path to the target, and the peer's MAC address."""
        ...

    def send(self, frame: bytes) -> list[bytes]:
        """Deliver one frame, and return the frames of the answer.

        It is Ethernet without its FCS, or a native InfiniBand packet with its VCRC.
        """
        ...


class Completion(NamedTuple):
    """What the application learns of one work request.

    ``number`` counts the work requests of its queue from 1. ``value`` is the immediate or the
    invalidated key, 0 if there is none; ``source`` the QPN of a datagram's sender.
    """

    number: int
    status: WCStatus
    opcode: WCOpcode | None = None
    length: int = 0
    value: int = 0
    source: int = 0

    def __str__(self) -> str:
        """Describe the completion in a line."""
        text = f"completion of work {self.number}: {self.status.name}"
        if self.opcode is not None:
            text += f", {self.opcode.name}, {plural(self.length, 'byte')}"
        text += f", value {self.value:#x}" if self.value else ""
        return text + (f", source {self.source:#x}" if self.source else "")


@runtime_checkable
class ObservableTarget(Target, Protocol):
    """A target whose application the fuzzer plays: it posts work, and sees memory."""

    def post_receive(self, length: int, srq: int = 0) -> bool:
        """Post a receive of ``length`` bytes into the next slot; ``False`` if it is refused.

        An XRC target posts it to the shared receive queue ``srq``, an index.
        """
        ...

    def completions(self) -> list[Completion]:
        """Remove and return the completions."""
        ...

    def memory(self) -> BytesLike:
        """Return the arena (:data:`rdmawire.fuzz.setup.ARENA`), or a view of it.

        It is compared before the next input, and not kept.
        """
        ...

    def wait(self, ns: int) -> list[bytes]:
        """Let ``ns`` nanoseconds pass; return the frames sent."""
        ...


@runtime_checkable
class HoldingTarget(ObservableTarget, Protocol):
    """A target that can transmit later, as an adapter whose port is busy.

    ACKs that wait coalesce, and a READ that waits is answered with the bytes of its execution.
    """

    def send_within(self, frame: bytes, room: int) -> list[bytes]:
        """Deliver a frame; return at most ``room`` frames of the target.

        The others are returned by the next call of ``send``, ``send_within`` or ``wait``.
        """
        ...


COUNTERS: Final = (
    "rx_write_requests", "rx_read_requests", "rx_atomic_requests", "out_of_buffer",
    "out_of_sequence", "out_of_seq_request", "duplicate_request", "send_rnr_err",
    "resp_local_length_error", "resp_remote_access_errors",
)  # fmt: skip
"""Counters of a responder that are compared, by their names in :mod:`rdmawire.ib.hw_counters`."""


@runtime_checkable
class CountingTarget(ObservableTarget, Protocol):
    """A target that shows the counters of its queue pair."""

    def counters(self) -> tuple[int, ...]:
        """Return the values of :data:`COUNTERS` since :meth:`reset`."""
        ...


@runtime_checkable
class RequesterTarget(ObservableTarget, Protocol):
    """A target whose application posts send work, too.

    Its queue pair holds :data:`rdmawire.fuzz.setup.MAX_SEND_WR` sends, and ``wait`` returns also
    the requests of work that was posted before.
    """

    def post_send(self, work: WorkInput) -> bool:
        """Post send work; ``False`` if it is refused."""
        ...

    def state(self) -> QPState:
        """Return the state of the queue pair."""
        ...


REQUESTER_COUNTERS: Final = (
    "packet_seq_err", "rcvd_seq_err", "rnr_nak_retry_err", "rcvd_rnr_err", "implied_nak_seq_err",
    "local_ack_timeout_err", "completer_retry_err", "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded", "req_remote_invalid_request", "req_remote_access_errors",
    "req_cqe_error", "req_cqe_flush_error",
)  # fmt: skip
"""Counters of a requester that are compared, by the same names."""


@runtime_checkable
class CountingRequesterTarget(RequesterTarget, Protocol):
    """A target that shows the counters of its queue pair as a requester."""

    def requester_counters(self) -> tuple[int, ...]:
        """Return the values of :data:`REQUESTER_COUNTERS` since :meth:`reset`."""
        ...
