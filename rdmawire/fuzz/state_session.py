"""Sessions of state-level fuzzing: steps that are played on hosts, and judged by the oracle.

A step is a name and arguments, all values that JSON can hold. Every step can be played in every
state: an index is reduced to the number of things that there are, and a verb that the standard
refuses in the state must be refused. So a sequence keeps its meaning when steps are removed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, Final

from rdmawire.errors import FuzzError, VerbsError
from rdmawire.fabric.simulator import SimulationLimit
from rdmawire.fuzz.exception_text import exception_text
from rdmawire.fuzz.exchange import Expected
from rdmawire.fuzz.frames import FrameBuilder
from rdmawire.fuzz.inputs import PacketInput, input_from_json
from rdmawire.fuzz.queue_end import (
    FRESH_LOCAL,
    SINK_SIZE,
    SINK_SLOTS,
    SINKS,
    SOURCE,
    SOURCE_SIZE,
    QueueEnd,
)
from rdmawire.fuzz.responder_state import Receive
from rdmawire.fuzz.setup import RECEIVE_SLOT
from rdmawire.fuzz.state_network import StateNetwork
from rdmawire.fuzz.state_oracle import StateViolation, fail
from rdmawire.fuzz.state_setup import RETRY_CNT, RNR_RETRY, RNR_TIMER, StateSetup
from rdmawire.fuzz.work_model import ACK_TIMEOUT, PostedWork, Problem
from rdmawire.ib.rules import Rules
from rdmawire.terminal import quote_value
from rdmawire.units import us
from rdmawire.verbs.enums import STATE_RULES, QPState, QPType
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, QPAttrMask
from rdmawire.verbs.wr import INLINE, VERBS, BindMW, Local, RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import Placement
from rdmawire.wire.opcode import SHAPES

SequenceStep = Mapping[str, Any]
"""One step: ``step`` is its name, the others are its arguments."""

MAX_STEPS: Final = 4096
INLINE_LIMIT: Final = 256


class StateSession(StateNetwork):
    """The network of a setup, and the steps played on it, which are in ``steps``."""

    def __init__(self, setup: StateSetup, rules: Mapping[int, Rules] | None = None) -> None:
        super().__init__(setup, rules)
        self.steps: list[SequenceStep] = []
        for end in self.ends:
            self._raise_to(end, QPState.RTS)

    # Playing.

    def play(self, step: SequenceStep) -> None:
        """Play one step and judge it. Raises :class:`StateViolation`; :class:`FuzzError` for names.

        Any other exception of an adapter is a violation, too.
        """
        self.steps.append(step)
        arguments = checked(step)
        try:
            STEPS[step["step"]](self, **arguments)
            self.simulator.run(self.simulator.now)
            self._judge()
        except (StateViolation, FuzzError):
            raise
        except SimulationLimit as error:
            expected = "an end of the events of one step"
            raise StateViolation(Problem("endless", "IBA 9.7", expected, str(error))) from error
        except Exception as error:
            happened = exception_text(error)
            raise StateViolation(Problem("exception", "", "no exception", happened)) from error

    def _judge(self) -> None:
        """Judge what does not belong to one event."""
        for station in self.stations:
            while station.nic.next_event() is not None:
                pass
            self.oracle.judge_counters(station)
        for end in self.ends:
            self._judge_end(end)

    def _judge_end(self, end: QueueEnd) -> None:
        work = end.work.unfinished() if end.state is QPState.RTS and end.reliable else None
        if work is not None:
            happened = f"none for work {work.wr.wr_id}, which is acknowledged"
            fail("completion", "IBA 10.8.5", "a completion", happened)
        if end.state is QPState.ERR and end.work.waits:
            happened = f"work {end.work.works[0].wr.wr_id} is not flushed"
            fail("flush", "IBA 10.8.3.3", "all work flushed", happened)
        since = end.work.no_progress_since()
        if end.state is QPState.RTS and since is not None:
            self._judge_progress(end, since)

    def _judge_progress(self, end: QueueEnd, since: int) -> None:
        """Work ends within its bounded time.

        Without progress, a requester may use each retry once: a Local ACK Timeout, or an RNR wait.
        Any progress allows them again (IBA 9.7.6.1.3, 9.7.5.2.8).
        """
        rnr = end.station.profile.rnr_timer_ns[RNR_TIMER]
        bound = (RETRY_CNT + RNR_RETRY + 3) * ACK_TIMEOUT + (RNR_RETRY + 1) * rnr + us(1000)
        if self.simulator.now - since > bound:
            happened = f"no progress for {self.simulator.now - since} ns"
            fail("stuck", "IBA 9.7.6.1.3, 9.7.5.2.8", f"progress in {bound} ns", happened)

    # Steps. Arguments are small numbers.

    def post(  # noqa: PLR0917  the arguments of a step
        self,
        end: int,
        verb: str,
        length: int = 0,
        flags: int = 2,
        region: int = 0,
        offset: int = 0,
        key: int = 0,
        value: int = 0,
        lkey: int = 0,
    ) -> None:
        """Post send work: ``region``, ``offset`` and ``key`` as in a packet input."""
        one = self.end(end)
        opcode = SendOpcode[verb]
        work = self._work(one, opcode, length, flags, lkey)
        if work is None:
            return
        numbers = one.peer.numbers
        wr = work.wr._replace(
            remote_address=(numbers.vas[region % 4] + offset) % (1 << 64),
            rkey=(numbers.rkeys[region % 4] + key) % (1 << 32),
            imm_data=value % (1 << 32),
            invalidate_rkey=(numbers.rkeys[-1] + key) % (1 << 32),
            compare_add=value,
            swap=value ^ 1,
        )
        self._post(one, replace(work, wr=self._addressed(one, wr)))

    def _work(
        self, end: QueueEnd, opcode: SendOpcode, length: int, flags: int, lkey: int
    ) -> PostedWork | None:
        """Return work with its local memory; ``None`` if no slot is free for a response."""
        verb = VERBS[opcode]
        number = end.posted_sends + 1
        length = 8 if verb.one_packet and opcode is not SendOpcode.FLUSH else length
        length = min(length, SINK_SIZE if end.kind is not QPType.UD else INLINE_LIMIT)
        wr = SendWR(opcode, wr_id=number, flags=flags)
        if opcode is SendOpcode.FLUSH:
            wr = wr._replace(length=length, placement=Placement.GLOBAL_VISIBILITY)
            return PostedWork(wr, length)
        if verb.local is Local.SINK:
            if sum(work.sink >= 0 for work in end.work.works) >= SINK_SLOTS:
                return None
            sink = SINKS + number % SINK_SLOTS * SINK_SIZE
            sges = (Sge(end.local_base + sink, length, end.sinks.lkey + lkey),) if length else ()
            return PostedWork(wr._replace(sges=sges), length, b"", sink, bool(lkey and length))
        return _sending(end, wr, length, lkey)

    def _addressed(self, end: QueueEnd, wr: SendWR) -> SendWR:
        """Add what datagrams and XRC need."""
        if end.kind is QPType.UD:
            path = end.station.path_to(end.peer.station)
            return wr._replace(ah=path, remote_qpn=end.peer.qpn, remote_qkey=0x11)
        if end.kind is QPType.XRC_INI and end.peer.srq is not None:
            return wr._replace(remote_srqn=end.peer.srq.number)
        return wr

    def _post(self, end: QueueEnd, work: PostedWork) -> None:
        """Post work, and model it; a refusal must be right."""
        fits = work.wr.opcode in end.qp.service.verbs and end.qp.service.sends
        allowed = fits and STATE_RULES[end.state].post_send
        try:
            end.station.nic.post_send(end.qp, (work.wr,))
        except VerbsError as error:
            if allowed and _is_plain(work.wr) and "unsupported" not in str(error):
                self._refused(end, error)
            return
        if not allowed:
            fail("post_send", "IBA 10.3.1", f"EINVAL in {end.state.name}", "work was accepted")
        end.posted_sends += 1
        end.work.post(work, self.simulator.now)

    def _refused(self, end: QueueEnd, error: VerbsError) -> None:
        """Work may be refused if the queue is full, or the device lacks the operation."""
        full = end.qp.free_sends == 0
        if not full and end.station.profile.name == "ibta":
            fail("post_send", "IBA 10.8.2", f"accepted in {end.state.name}", str(error))

    def receive(self, end: int, length: int) -> None:
        """Post a receive of ``length`` bytes in the next slot."""
        one = self.end(end)
        length = min(length, RECEIVE_SLOT)
        number, start = one.posted_receives + 1, one.next_slot()
        sges = (Sge(one.station.base + start, length, one.station.sink.lkey),) if length else ()
        wr = RecvWR(sges, number)
        nic = one.station.nic
        try:
            if one.srq is None:
                nic.post_recv(one.qp, (wr,))
            else:
                nic.post_srq_recv(one.srq, (wr,))
        except VerbsError:
            return
        if one.srq is None and not STATE_RULES[one.state].post_recv:
            fail("post_recv", "IBA 10.3.1", f"EINVAL in {one.state.name}", "it was accepted")
        self._received(one, number, start, length)

    def _received(self, end: QueueEnd, number: int, start: int, length: int) -> None:
        """Model a posted receive, and judge its unsolicited ACK."""
        end.posted_receives += 1
        end.receives.append(Receive(number, start, length))
        if end.responder is None:
            return
        end.receives.clear()
        expected = end.responder.post_receive(length)
        self.port_of(end).posted(end, expected, self.simulator.now)

    def modify(self, end: int, state: str) -> None:
        """Change the state of a queue pair, with the attributes that the change needs."""
        one = self.end(end)
        wanted = QPState[state]
        needs = QP_TRANSITIONS.get((one.kind, one.state, wanted))
        mask = QPAttrMask.STATE | (QPAttrMask(0) if needs is None else needs.required)
        draining = one.state is QPState.SQD and one.qp.sq.under_way
        try:
            attributes = one.attributes._replace(qp_state=wanted)
            one.station.nic.modify_qp(one.qp, attributes, mask)
        except VerbsError as error:
            if needs is not None and not draining:
                fail("modify_qp", "IBA 10.3.1", f"{one.state.name} to {state}", str(error))
            return
        if needs is None:
            fail("modify_qp", "IBA 10.3.1", f"EINVAL from {one.state.name} to {state}", "changed")
        self._entered(one, wanted)

    def _entered(self, end: QueueEnd, state: QPState) -> None:
        """Model the new state."""
        if state is QPState.RESET:
            end.forget()
        if state is QPState.RTS and end.state is not QPState.RTS:
            end.work.resume(self.simulator.now)
        if state is QPState.ERR and end.responder is not None:
            end.responder.enter_error()
        end.state = state

    def _raise_to(self, end: QueueEnd, state: QPState) -> None:
        """Bring a queue pair from RESET to a state."""
        number = self.ends.index(end)
        for one in (QPState.INIT, QPState.RTR, QPState.RTS):
            self.modify(number, one.name)
            if one is state:
                return

    def reconnect(self, end: int) -> None:
        """Reset both ends of a connection, and bring them to RTS again."""
        one = self.end(end)
        for each in (one, one.peer):
            self.modify(self.ends.index(each), "RESET")
            self._raise_to(each, QPState.RTS)

    def destroy(self, end: int) -> None:
        """Destroy a queue pair, and create another with its number, in RESET."""
        one = self.end(end)
        one.destroy()
        one.create()
        one.take_numbers()

    def bind(self, end: int) -> None:
        """Bind the window again by posted work, if it is invalid and no other work waits."""
        one = self.end(end)
        if not self._may_change_key(one) or one.window.valid:
            return
        before, bind = one.window_rkey, one.next_bind()
        wr = SendWR(SendOpcode.BIND_MW, wr_id=one.posted_sends + 1)
        wr = wr._replace(bind=BindMW(one.window, one.station.regions[0], bind))
        self._post(one, PostedWork(wr))
        self.port_of(one).posted(one, Expected(), self.simulator.now)
        if one.window.key != bind.rkey:
            one.window_rkey = before
        one.take_numbers()

    @staticmethod
    def _may_change_key(end: QueueEnd) -> bool:
        """Whether work that changes the window's key is done as soon as it is posted."""
        return end.state is QPState.RTS and not end.work.waits and end.kind is not QPType.UD

    def invalidate(self, end: int) -> None:
        """Invalidate the window's key by posted work, if it is valid and no other work waits."""
        one = self.end(end)
        if not self._may_change_key(one) or not one.window.valid:
            return
        wr = SendWR(SendOpcode.LOCAL_INV, wr_id=one.posted_sends + 1)
        self._post(one, PostedWork(wr._replace(invalidate_rkey=one.window_rkey)))
        self.port_of(one).posted(one, Expected(), self.simulator.now)
        if one.responder is not None:
            one.responder.invalidate_window()

    def register(self, host: int, region: int) -> None:
        """Deregister and register a region without windows, if no message writes to it."""
        station = self.stations[host % len(self.stations)]
        models = [end.responder for end in station.ends]
        if all(model is None or not model.message.family for model in models):
            station.register_again(1 + region % 2)

    def inject(self, end: int, packet: dict[str, Any]) -> None:
        """Deliver a packet that the peer did not send. ``ahead`` is relative as in a case."""
        one = self.end(end)
        given = input_from_json({"input": "packet", **packet})
        if not isinstance(given, PacketInput):
            raise FuzzError("inject: not a packet")
        opcode = one.base | given.opcode & 31
        expected = one.work.unacked if _is_response(opcode) else self._expected(one)
        peer = one.peer.station
        builder = FrameBuilder(peer.path_to(one.station), peer.mac, one.numbers)
        frame = builder.frame(replace(given, opcode=opcode), (expected + given.ahead) % (1 << 24))
        now = self.simulator.now
        self.record(frame, now)
        self.port_of(one).receive(frame, now)

    @staticmethod
    def _expected(end: QueueEnd) -> int:
        """The PSN that a responder expects."""
        return end.qp.inbound.epsn if end.responder is None else end.responder.epsn

    def fault(self, do: str, ahead: int = 0, by: int = 1) -> None:
        """Plan a fault for the frame after the next ``ahead`` frames."""
        self.faults.plan(ahead, do, _FAULT_OPTIONS[do](by))

    def wait(self, ns: int) -> None:
        """Let time pass."""
        self.simulator.run(self.simulator.now + ns)

    def settle(self) -> None:
        """Let time pass until nothing is left to do; work in RTS has ended then."""
        self.simulator.run()
        for end in self.ends:
            if end.state is QPState.RTS and end.work.no_progress_since() is not None:
                happened = f"work {end.work.works[0].wr.wr_id} waits, and nothing is left to do"
                fail("stuck", "IBA 9.7.6.1.3, 9.7.5.2.8", "all work ended", happened)


def _sending(end: QueueEnd, wr: SendWR, length: int, lkey: int) -> PostedWork:
    """Return work that sends bytes of local memory, inline if its flags say so."""
    start = SOURCE + wr.wr_id % 8 if length < SOURCE_SIZE - 8 else SOURCE
    data = FRESH_LOCAL[start : start + length]
    if wr.flags & INLINE and length <= INLINE_LIMIT:
        return PostedWork(wr._replace(inline=data), length, data)
    wr = wr._replace(flags=wr.flags & ~INLINE)
    if not length:
        return PostedWork(wr)
    sge = Sge(end.local_base + start, length, end.source.lkey + lkey)
    return PostedWork(wr._replace(sges=(sge,)), length, data, local_error=bool(lkey))


def _is_plain(wr: SendWR) -> bool:
    """Whether the flags of work are allowed for all services and operations."""
    return not wr.flags & ~2


def _is_response(opcode: int) -> bool:
    shape = SHAPES.get(opcode)
    return shape is not None and shape.response


_FAULT_OPTIONS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "drop": lambda _: {},
    "duplicate": lambda by: {"times": 1, "wait": us(by)},
    "delay": lambda by: {"by": us(by)},
    "reorder": lambda by: {"behind": by % 4 + 1},
    "corrupt": lambda by: {"byte": by},
    "truncate": lambda by: {"by": by},
}
"""Options of each fault, of one small number."""

STEPS: Final[dict[str, Callable[..., None]]] = {
    name: getattr(StateSession, name)
    for name in (
        "post",
        "receive",
        "modify",
        "reconnect",
        "destroy",
        "bind",
        "invalidate",
        "register",
        "inject",
        "fault",
        "wait",
        "settle",
    )
}
"""All steps by name."""


def checked(step: Any) -> dict[str, Any]:
    """Return the arguments of a step. Raises :class:`FuzzError` if it cannot be played."""
    if not isinstance(step, Mapping) or str(step.get("step")) not in STEPS:
        raise FuzzError(f"step {quote_value(step)}: its 'step' is none of {', '.join(STEPS)}")
    name = step["step"]
    arguments = {key: value for key, value in step.items() if key != "step"}
    wanted = _ARGUMENTS[name]
    for key, value in arguments.items():
        if key not in wanted:
            raise FuzzError(
                f"step {name}: no argument {quote_value(key)}; it has {', '.join(wanted)}"
            )
        if type(value) is not wanted[key]:
            raise FuzzError(
                f"step {name}: {key} is {quote_value(value)}, not of type {wanted[key].__name__}"
            )
        if key in _NAMES and value not in _NAMES[key]:
            raise FuzzError(
                f"step {name}: {key} {quote_value(value)} is none of {', '.join(_NAMES[key])}"
            )
    if missing := [key for key in _NEEDED[name] if key not in arguments]:
        raise FuzzError(f"step {name}: {missing[0]} is missing")
    return arguments


def _parameters(step: Callable[..., None]) -> list[Parameter]:
    """The arguments of a step."""
    return list(signature(step).parameters.values())[1:]


_TYPES: Final[dict[Any, type]] = {int: int, str: str, dict[str, Any]: dict}
_ARGUMENTS: Final = {
    name: {one.name: _TYPES[one.annotation] for one in _parameters(step)}
    for name, step in STEPS.items()
}
"""The type of each argument of each step."""
_NEEDED: Final = {
    name: [one.name for one in _parameters(step) if one.default is one.empty]
    for name, step in STEPS.items()
}
_NAMES: Final[dict[str, Sequence[str]]] = {
    "verb": tuple(SendOpcode.__members__),
    "state": tuple(QPState.__members__),
    "do": tuple(_FAULT_OPTIONS),
}
"""The values of arguments that are names."""


def played(
    setup: StateSetup, steps: Sequence[SequenceStep], rules: Mapping[int, Rules] | None = None
) -> tuple[StateSession, Problem | None]:
    """Play steps; return the session and the first violation, or ``None``."""
    session = StateSession(setup, rules)
    for step in steps[:MAX_STEPS]:
        try:
            session.play(step)
        except StateViolation as violation:
            session.record_unsent()
            return session, violation.problem
    return session, None
