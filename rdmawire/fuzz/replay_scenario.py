"""Cases as scenarios: the YAML text that plays a case with ``rdmawire run``.

The client sends the packets of the case with the verb ``inject``; the server is the target, with
the same regions, window and receive slots. What the standard requires (the replies, completions,
memory and state of the queue pair) is expected as far as expectations can say it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Expected, Reply
from rdmawire.fuzz.frames import FrameBuilder
from rdmawire.fuzz.inputs import Case, Input, PacketInput, ReceiveInput, WaitInput
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.packet_validation import request_of
from rdmawire.fuzz.replay_packet import (
    QUEUES,
    InjectedPacket,
    uses_window,
)
from rdmawire.fuzz.request_role import REQUEST_ROLES
from rdmawire.fuzz.scenario_text import (
    APART,
    AREA_NAMES,
    arena_lines,
    cannot_play,
    check_network,
    comment_lines,
    difference_text,
    digit_lines,
    head_lines,
    key_lines,
    memory_lines,
    rights_text,
)
from rdmawire.fuzz.service_model import fresh_model
from rdmawire.fuzz.setup import (
    AREAS,
    RECEIVE_SLOT,
    RECEIVE_SLOTS,
    RECEIVES,
    SHARED_QUEUES,
    WINDOW,
    Area,
    Network,
    Setup,
    SharedQueue,
    receive_start,
)
from rdmawire.fuzz.target import Completion
from rdmawire.memory.key import Access
from rdmawire.traffic.scenario.types import MAX_TIME, format_time
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.wire import serial
from rdmawire.wire.ib import AETH, BTH, GRH, ICRC, Ack, AtomicAckETH, Nak
from rdmawire.wire.inet import UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.opcode import Opcode, Service
from rdmawire.wire.opcode import Operation as Op

_RECEIVES: Final = 256
"""Receives of a shared receive queue, at most."""
_TYPES: Final = {
    QPType.RC: "RC",
    QPType.UC: "UC",
    QPType.UD: "UD",
    QPType.XRC_TGT: "XRC",
}
"""The type of a connection whose second end is a queue pair of this type."""


class ModelledInput(NamedTuple):
    """An input as it was modelled: its PSN if it is a packet, and what the standard requires."""

    one: Input
    psn: int
    expected: Expected


class ModelRun:
    """A case played on the model alone. ``steps`` has each input; ``model`` is the final state.

    ``accepted`` has the differences from ``ibta`` that are accepted. ``with_imm`` has the numbers
    of the receives that complete with immediate data.
    """

    def __init__(self, case: Case, accepted: Profile = IBTA) -> None:
        setup = case.setup
        self.with_imm: set[int] = set()
        target = EngineTarget()
        target.reset(setup)
        self.builder = FrameBuilder(*target.path(setup), target.numbers(setup))
        self.model = fresh_model(setup, self.builder.numbers, accepted)
        self.steps = [self._step(one) for one in case.inputs]

    def _step(self, one: Input) -> ModelledInput:
        model = self.model
        if isinstance(one, PacketInput):
            psn = serial.add(model.epsn, one.ahead)
            return ModelledInput(one, psn, self._packet(one, psn))
        if isinstance(one, ReceiveInput):
            return ModelledInput(one, 0, model.post_receive(one.length, one.srq))
        if isinstance(one, WaitInput):
            return ModelledInput(one, 0, Expected())
        raise FuzzError(f"a scenario cannot play this input: {one}")

    def _packet(self, one: PacketInput, psn: int) -> Expected:
        builder = self.builder
        frame = builder.frame(one, psn)
        any_sender = self.model.any_sender
        request = request_of(frame, builder.headers, builder.numbers.qpn, any_sender=any_sender)
        if request is None:
            return Expected((), "IBA 9.6", "a damaged packet is dropped without an answer")
        before = len(self.model.completions)
        expected = self.model.request(request)
        role = REQUEST_ROLES.get(request.opcode & 31)
        if role is not None and role.imm:
            self.with_imm.update(done.number for done in self.model.completions[before:])
        return expected

    @property
    def replies(self) -> list[Reply]:
        """The required replies, in order."""
        return [reply for step in self.steps for reply in step.expected.replies]

    @property
    def uses_window(self) -> bool:
        """Whether some packet has the key of the window."""
        if self.model.wire is Service.UD:  # datagrams name no memory
            return False
        numbers = self.builder.numbers
        return any(
            isinstance(step.one, PacketInput) and uses_window(step.one, numbers)
            for step in self.steps
        )


def scenario_text(
    case: Case,
    violation: Violation | None = None,
    *,
    profile: str = "ibta",
    bug: str = "",
    accepted: Profile = IBTA,
) -> str:
    """Return the text of a scenario that plays a case.

    ``violation`` is described in it; ``profile`` is that of the target's adapter, and ``bug`` the
    name of the bug that was planted in it; ``accepted`` is that of :class:`ModelRun`. Raises
    :class:`FuzzError` for a case that a scenario cannot play: on native InfiniBand, with a memory
    window of an XRC target, or with more time than a scenario may take.
    """
    _check(case)
    run = ModelRun(case, accepted)
    if run.uses_window and case.setup.service is QPType.XRC_TGT:
        raise cannot_play("an XRC target cannot bind its window")
    parts = (
        head_lines(_about(violation, bug), violation, _end(case.inputs)),
        _hosts(case.setup, profile, window=run.uses_window),
        _connection(case.setup),
        _queue_connections(case),
        _work(run),
        _expectations(case.setup, run),
    )
    return "".join(f"{line}\n" for part in parts for line in part)


def _check(case: Case) -> None:
    setup = case.setup
    check_network(setup)
    if setup.service not in _TYPES:
        raise cannot_play(f"service {setup.service.name}")
    if any(isinstance(one, PacketInput) and one.room is not None for one in case.inputs):
        raise cannot_play("the target transmits later")
    if (end := _end(case.inputs)) > MAX_TIME:
        raise cannot_play(f"{end} ns are more than {format_time(MAX_TIME)}")


def _end(inputs: Iterable[Input]) -> int:
    return sum(APART + (one.ns if isinstance(one, WaitInput) else 0) for one in inputs)


# Sections.


def _about(violation: Violation | None, bug: str) -> str:
    option = f" --bug server={bug}" if bug else ""
    text = (
        "The client sends crafted packets to the server, and the server must answer as the "
        f"standard requires. Run it with: rdmawire run{option} FILE."
    )
    return text if violation is None else f"{text} {difference_text(violation)}"


def _hosts(setup: Setup, profile: str, *, window: bool) -> Iterator[str]:
    ipv6 = setup.network is not Network.ROCE2_IPV4
    yield "hosts:"
    yield f"  client: {{{'address: fd00::1' if ipv6 else ''}}}"
    yield "  server:"
    if profile != "ibta":
        yield f"    profile: {profile}"
    if window:
        yield "    windows: [window]"
    if setup.service is QPType.XRC_TGT:
        yield "    shared receives:"
        for name, queue in zip(QUEUES, SHARED_QUEUES, strict=True):
            yield f"      {name}: {{max_wr: {_RECEIVES}{_kind_of(queue)}}}"
    slots = Area(RECEIVES, RECEIVE_SLOT * RECEIVE_SLOTS, int(Access.LOCAL_WRITE))
    yield from arena_lines((*AREAS, slots))


def _kind_of(queue: SharedQueue) -> str:
    if not queue.is_xrc:
        return ""
    return ", xrc: true" if queue.usable else ", xrc: true, other domain: true"


def _connection(setup: Setup) -> Iterator[str]:
    server = {}
    if setup.service in (QPType.RC, QPType.XRC_TGT):
        server = {
            "max_rd_atomic": f"{setup.rd_atomic}",
            "max_dest_rd_atomic": f"{setup.rd_atomic}",
            "min_rnr_timer": f"{setup.rnr_timer}",
        }
    if setup.service is QPType.UD:
        server["qkey"] = f"{setup.qkey}"
    elif not setup.access:
        server["qp_access_flags"] = "[]"
    yield "connections:"
    yield "  a:"
    yield "    between: client, server"
    yield f"    type: {_TYPES[setup.service]}"
    if setup.network is Network.ROCE1:
        yield "    gid type: ROCE_V1"
    if setup.service is QPType.XRC_TGT:
        yield f"    shared receives: {{server: {QUEUES[0]}}}"
    yield f"    mtu: {setup.mtu}"
    yield f"    psn: {setup.psn}"
    if server:
        pairs = ", ".join(f"{name}: {value}" for name, value in server.items())
        yield f"    attributes of server: {{{pairs}}}"


def _queue_connections(case: Case) -> Iterator[str]:
    """Yield connections whose ends post receives to the further shared receive queues."""
    for number in sorted({one.srq for one in case.inputs if isinstance(one, ReceiveInput)}):
        if number:
            yield f"  {QUEUES[number]}:"
            yield "    between: client, server"
            yield f"    type: {'XRC' if SHARED_QUEUES[number].is_xrc else 'RC'}"
            yield f"    shared receives: {{server: {QUEUES[number]}}}"


# Work.


def _work(run: ModelRun) -> Iterator[str]:
    completions = {done.number: done for done in run.model.completions}
    window = list(_bind()) if run.uses_window else []
    if not (window or run.steps):
        return
    yield "work:"
    yield from window
    now, receives = 0, 0
    for number, step in enumerate(run.steps, 1):
        now += APART
        yield from comment_lines(f"{number}. {step.one}")
        yield from comment_lines(f"   {_required(step.expected)}")
        if isinstance(step.one, PacketInput):
            yield from _packet(step, run.builder, now)
        elif isinstance(step.one, ReceiveInput):
            receives += 1
            done = completions.get(receives)
            outcome = ", ".join(_outcome(done, with_imm=receives in run.with_imm))
            yield from _receive(step.one, receives, outcome, now)
        elif isinstance(step.one, WaitInput):
            now += step.one.ns


def _required(expected: Expected) -> str:
    replies = "; ".join(map(str, expected.replies)) or "no reply"
    why = ", ".join(filter(None, (expected.why, expected.clause)))
    return f"-> {replies}{f' ({why})' if why else ''}"


def _bind() -> Iterator[str]:
    start = WINDOW.start - AREAS[0].start
    yield "  - bind_mw:"
    yield "      on: server/a"
    yield "      what: server.window"
    yield f'      to: "server.{AREA_NAMES[0]}[{start}:{start + WINDOW.length}]"'
    yield f"      access: {rights_text(WINDOW.access)}"


def _packet(step: ModelledInput, builder: FrameBuilder, now: int) -> Iterator[str]:
    assert isinstance(step.one, PacketInput)
    yield "  - inject:"
    yield "      on: client/a"
    yield f"      at: {format_time(now)}"
    for key in InjectedPacket(step.one, step.psn, builder).step_keys():
        yield from key_lines(key)


def _receive(one: ReceiveInput, number: int, outcome: str, now: int) -> Iterator[str]:
    start = receive_start(number - 1, one.length) - RECEIVES
    end = QUEUES[one.srq] if one.srq else "a"
    into = f', into: "server.slots[{start}:{start + one.length}]"' if one.length else ""
    yield f"  - receive: {{on: server/{end}, at: {format_time(now)}{into},"
    yield f"              {outcome}}}"


def _outcome(done: Completion | None, *, with_imm: bool) -> Iterator[str]:
    """Yield what is expected of the completion of a receive."""
    yield f"status: {done.status.name if done else 'none'}"
    if done is not None and done.status is WCStatus.SUCCESS:
        yield f"byte_len: {done.length}"
        if with_imm:
            yield f"imm: {done.value:#x}"


# Expectations.


def _expectations(setup: Setup, run: ModelRun) -> Iterator[str]:
    replies = run.replies
    yield "expect:"
    yield "  memory:"
    yield from memory_lines(bytes(run.model.memory), run.model.undefined)
    size = sum(_size(setup, reply) for reply in replies)
    yield f"  counters: {{server.frames: {len(replies)}, server.frame_bytes: {size}}}"
    if replies:
        yield "  packets:"
        for (fields, data), count in _counted(setup, replies).items():
            yield f"    - where: {{{fields}}}"
            if data:
                yield from digit_lines("payload", data, "      ")
            elif data is not None:
                yield "      payload: 0"
            yield f"      count: {count}"
    state = "ERR" if run.model.failed else "RTS"
    yield f"  states: {{client/a: RTS, server/a: {state}}}"


def _counted(setup: Setup, replies: Iterable[Reply]) -> Counter[tuple[str, bytes | None]]:
    """Count equal replies, by their fields and their payload if they are responses of a READ."""
    counts = Counter[tuple[str, bytes | None]]()
    for reply in replies:
        fields = ", ".join(f"{name}: {value}" for name, value in _fields(setup, reply))
        payload = None if reply.operation in _WITHOUT_PAYLOAD else reply.data
        counts[fields, payload] += 1
    return counts


_WITHOUT_PAYLOAD: Final = (Op.ACKNOWLEDGE, Op.ATOMIC_ACKNOWLEDGE)


def _fields(setup: Setup, reply: Reply) -> Iterator[tuple[str, str]]:
    """Yield the fields of a reply with their values."""
    opcode = Opcode[f"{_TYPES[setup.service]}_{Op(reply.operation).name}"]
    yield "bth.opcode", opcode.name
    yield "bth.psn", str(reply.psn)
    if reply.syndrome >= 0:
        ack, value = Ack(reply.syndrome >> 5), reply.syndrome & 31
        yield "aeth.ack", ack.name
        yield "aeth.value", Nak(value).name if ack is Ack.NAK else str(value)
        yield "aeth.msn", str(reply.msn)
    if reply.operation == Op.ATOMIC_ACKNOWLEDGE:
        yield "atomicacketh.origremdt", str(int.from_bytes(reply.data, "big"))


_NETWORK_BYTES: Final = {
    Network.ROCE2_IPV4: IPv4.SIZE + UDP.SIZE,
    Network.ROCE2_IPV6: IPv6.SIZE + UDP.SIZE,
    Network.ROCE1: GRH.SIZE,
}


def _size(setup: Setup, reply: Reply) -> int:
    """Return the bytes of a reply's frame."""
    size = Ethernet.SIZE + _NETWORK_BYTES[setup.network] + BTH.SIZE + ICRC.SIZE
    size += AETH.SIZE if reply.syndrome >= 0 else 0
    if reply.operation == Op.ATOMIC_ACKNOWLEDGE:
        return size + AtomicAckETH.SIZE
    return size + len(reply.data) + -len(reply.data) % 4
