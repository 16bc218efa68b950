"""Cases of requesters as scenarios: the YAML text that plays a case with ``rdmawire run``.

The server is the target, and posts the work of the case. The queue pair of the client is in the
error state, so that it answers nothing; the responses of the case are sent by the verb ``inject``.
Inputs are 10 us apart, in which timers run, and the run goes on until no timer is left: what is
expected is what the model requires when as much time passes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Request
from rdmawire.fuzz.inputs import SINK_WORK, AnswerInput, Case, Input, WaitInput, WorkInput
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.replay_packet import InjectedPacket, header_values
from rdmawire.fuzz.requester_frames import AnswerBuilder, packet_of, request_headers
from rdmawire.fuzz.requester_model import Sent
from rdmawire.fuzz.requester_services import fresh_requester
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
    passes,
    read,
)
from rdmawire.fuzz.setup import AREAS, PEER_VA, QKEY, Network, Setup
from rdmawire.ib.rules import Rules
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.scenario.types import MAX_TIME, format_time
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.wire.ib import IETH
from rdmawire.wire.opcode import Opcode

_LATENCY: Final = 1000
"""Nanoseconds that a frame is on the link."""
_SPARE: Final = 1_000_000
"""Nanoseconds that a run may take beyond twice the expected time: retries without end are cut."""
_MAX_RETRIES: Final = 64
_PEER_SIZE: Final = 64 << 10
_TYPES: Final = {QPType.RC: "RC", QPType.UC: "UC", QPType.UD: "UD", QPType.XRC_INI: "XRC"}
"""The type of a connection, by the queue pair that sends."""
_VERBS: Final = {
    "SEND": "send",
    "SEND_WITH_IMM": "send_imm",
    "SEND_WITH_INV": "send_inv",
    "RDMA_WRITE": "write",
    "RDMA_WRITE_WITH_IMM": "write_imm",
    "RDMA_READ": "read",
    "ATOMIC_CMP_AND_SWP": "compare_swap",
    "ATOMIC_FETCH_AND_ADD": "fetch_add",
    "ATOMIC_WRITE": "atomic_write",
    "FLUSH": "flush",
}
"""The verb of a scenario for each type of work."""
_OPERANDS: Final = {
    "SEND_WITH_IMM": {"imm": "value"},
    "RDMA_WRITE_WITH_IMM": {"imm": "value"},
    "ATOMIC_CMP_AND_SWP": {"compare": "compare", "swap": "value"},
    "ATOMIC_FETCH_AND_ADD": {"add": "value"},
}
"""Keys of verbs for operands, and the fields of the work that have them."""
_WITHOUT_MEMORY: Final = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")
_BITS_32: Final = (1 << 32) - 1
_EIGHT: Final = 8


class TimedInput(NamedTuple):
    """An input and its time (ns); the PSN of a response, the inline bytes of work."""

    one: Input
    at: int
    why: str
    psn: int = 0
    msn: int = 0
    inline: bytes | None = None


class RequesterRun:
    """A case played on the model alone, as a scenario plays it.

    ``requests`` are all that must be sent, ``model`` is the final state, ``now`` its time (ns).
    ``end`` is when the last frame has arrived and the last work is complete.
    """

    def __init__(self, case: Case, accepted: Profile = IBTA) -> None:
        setup = case.setup
        target = EngineTarget()
        target.reset(setup)
        self.model = fresh_requester(setup, accepted)
        self.builder = AnswerBuilder(*target.path(setup), target.numbers(setup))
        self.builder.service = self.model.wire
        self.requests: list[Request] = []
        self._completed = 0
        self.now = self.end = 0
        self.steps = [
            step for one in case.inputs if (step := self._step(_playable(one))) is not None
        ]
        self._finish()

    def _step(self, one: Input) -> TimedInput | None:
        self._pass(APART)
        if isinstance(one, WorkInput):
            return self._work(one) if self.model.room else None
        if isinstance(one, AnswerInput):
            return self._answer(one)
        if isinstance(one, WaitInput):
            return TimedInput(one, self.now, self._pass(one.ns))
        raise FuzzError(f"a requester has no input of kind {one.kind}")

    def _work(self, one: WorkInput) -> TimedInput:
        inline = self.model.read(one) if one.inline else None
        if not self.model.accepts(one):
            return TimedInput(one, self.now, "refused", inline=inline)
        return TimedInput(one, self.now, self._take(self.model.post(one)), inline=inline)

    def _answer(self, one: AnswerInput) -> TimedInput:
        model, builder = self.model, self.builder
        packet = model.unacked + one.ahead
        psn, msn = model.psn(packet), (model.msn(packet + 1) + one.msn) % (1 << 24)
        reply = builder.reply_for(one, psn, msn)
        why = "dropped" if reply is None else self._take(model.answer(reply))
        self.end = max(self.end, self.now)
        return TimedInput(one, self.now, why, psn, msn)

    def _take(self, sent: Sent) -> str:
        """Note what happens now; return the reason."""
        self.requests += sent.requests
        if sent.requests:
            self.end = self.now + _LATENCY
        if len(self.model.completions) > self._completed:
            self.end = max(self.end, self.now)
        self._completed = len(self.model.completions)
        return sent.why

    def _pass(self, ns: int) -> str:
        """Let time pass, from one timer to the next."""
        until, why = self.now + ns, ""
        while self.model.deadline is not None and self.model.deadline < until:
            why = self._wait_until(self.model.deadline)
        return self._wait_until(until) or why

    def _wait_until(self, time: int) -> str:
        ns, self.now = time - self.now, time
        return self._take(self.model.wait(ns))

    def _finish(self) -> None:
        """Let all timers expire."""
        for _ in range(_MAX_RETRIES):
            if self.model.deadline is None:
                return
            self._wait_until(self.model.deadline)
        raise cannot_play("the requester retries without end")


def requester_scenario(
    case: Case,
    violation: Violation,
    *,
    profile: str = "ibta",
    bug: str = "",
    rules: Rules | None = None,
    accepted: Profile = IBTA,
) -> str:
    """Return the text of a scenario that plays a case of a requester.

    ``rules`` are those of the bug that was planted; the other arguments are those of
    :func:`rdmawire.fuzz.replay_scenario.scenario_text`. Raises :class:`FuzzError` for a case that a
    scenario cannot play, and if the scenario does not show the violation.
    """
    check_network(case.setup)
    run = RequesterRun(case, accepted)
    if run.now > MAX_TIME:
        raise cannot_play(f"{run.now} ns are more than {format_time(MAX_TIME)}")

    def text(profile: str, *, timed: bool) -> str:
        return _text(case, violation, run, profile=profile, bug=bug, timed=timed)

    timed = passes(text("ibta", timed=True))
    if not timed and not passes(text("ibta", timed=False)):
        raise cannot_play("it fails on a healthy adapter")
    found = text(profile, timed=timed)
    if (bug or profile != "ibta") and passes(found, rules):
        raise cannot_play("it does not show the violation")
    return found


def _text(
    case: Case, violation: Violation, run: RequesterRun, *, profile: str, bug: str, timed: bool
) -> str:
    """Return the text; ``timed`` says whether it expects the time at which the run ends."""
    begin = _joined(
        head_lines(_about(violation, bug), violation, run.now, 2 * run.now + _SPARE),
        _hosts(case.setup, profile),
        _connection(case),
        _work(run),
    )
    return begin + _joined(_expectations(run, _Numbers.of(begin), timed=timed))


def _joined(*parts: Iterable[str]) -> str:
    return "".join(f"{line}\n" for part in parts for line in part)


def _about(violation: Violation, bug: str) -> str:
    option = f" --bug server={bug}" if bug else ""
    return (
        "The server posts work; the client, whose queue pair answers nothing, sends crafted "
        "responses. The server must send and complete what the standard requires. Run it with: "
        f"rdmawire run{option} FILE. {difference_text(violation)}"
    )


# Sections.


def _hosts(setup: Setup, profile: str) -> Iterator[str]:
    ipv6 = setup.network is not Network.ROCE2_IPV4
    yield "hosts:"
    yield "  client:"
    if ipv6:
        yield "    address: fd00::1"
    yield "    windows: [window]  # whose key SEND with Invalidate names"
    if setup.service is QPType.XRC_INI:
        yield "    shared receives: {pool: {xrc: true}}"
    yield f"    memory: {{peer: {_PEER_SIZE >> 10} KiB}}"
    yield "  server:"
    if profile != "ibta":
        yield f"    profile: {profile}"
    yield from arena_lines(AREAS)


def _connection(case: Case) -> Iterator[str]:
    setup = case.setup
    is_xrc = setup.service is QPType.XRC_INI
    yield "connections:"
    yield "  a:"
    yield f"    between: {'server, client' if is_xrc else 'client, server'}"
    yield f"    type: {_TYPES[setup.service]}"
    if setup.network is Network.ROCE1:
        yield "    gid type: ROCE_V1"
    if is_xrc:
        yield "    shared receives: {client: pool}"
    yield f"    mtu: {setup.mtu}"
    yield f"    psn: {setup.psn}"
    if setup.service is QPType.UD:
        yield f"    attributes of client: {{qkey: {_remote_qkey(case)}}}"
    names = _ATTRIBUTES.get(setup.service, ())
    pairs = ", ".join(f"{name}: {value}" for name, value in setup.as_json().items()
                      if name in names)  # fmt: skip
    own = f"{pairs}, max_rd_atomic: {setup.rd_atomic}" if "timeout" in names else pairs
    if own:
        yield f"    attributes of server: {{{own}}}"


_ATTRIBUTES: Final = {
    QPType.RC: ("timeout", "retry_cnt", "rnr_retry"),
    QPType.XRC_INI: ("timeout", "retry_cnt", "rnr_retry"),
    QPType.UD: ("qkey",),
}
"""Values of a setup that are attributes of the server's queue pair."""


def _remote_qkey(case: Case) -> int:
    """The Q_Key of all work: scenarios send with the Q_Key of the peer."""
    qkeys = {one.qkey for one in case.inputs if isinstance(one, WorkInput)}
    if len(qkeys) > 1:
        raise cannot_play("work with several Q_Keys")
    return next(iter(qkeys), QKEY)


# Work.


def _work(run: RequesterRun) -> Iterator[str]:
    statuses = {done.number: done.status.name for done in run.model.completions}
    yield "work:"
    yield "  - modify: {on: client/a, state: ERR}"
    number = 0
    for step_number, step in enumerate(run.steps, 1):
        yield from comment_lines(f"{step_number}. {step.one}")
        yield from comment_lines(f"   -> {step.why}")
        if isinstance(step.one, AnswerInput):
            yield from _inject(run, step.one, step)
        elif isinstance(step.one, WorkInput) and step.why == "refused":
            yield from _post(step.one, step, "refused: EINVAL")
        elif isinstance(step.one, WorkInput):
            number += 1
            yield from _post(step.one, step, f"status: {statuses.get(number, 'none')}")


def _inject(run: RequesterRun, one: AnswerInput, step: TimedInput) -> Iterator[str]:
    yield "  - inject:"
    yield "      on: client/a"
    yield f"      at: {format_time(step.at - _LATENCY)}"
    packet = packet_of(one, step.msn)
    for key in InjectedPacket(packet, step.psn, run.builder).step_keys():
        yield from key_lines(key)


def _post(one: WorkInput, step: TimedInput, outcome: str) -> Iterator[str]:
    yield f"  - {_VERBS[one.verb]}:"
    yield "      on: server/a"
    yield f"      at: {format_time(step.at)}"
    yield from _local(one, step.inline)
    if one.verb not in _WITHOUT_MEMORY:
        yield f"      {'from' if one.verb == 'RDMA_READ' else 'to'}: {_remote(one)}"
    if one.verb == "SEND_WITH_INV":
        yield "      key: client.window"
    for key, name in _OPERANDS.get(one.verb, {}).items():
        bits = _BITS_32 if key == "imm" else -1
        yield f"      {key}: {getattr(one, name) & bits}"
    names = [name for name, given in (("SIGNALED", one.signaled), ("FENCE", one.fence)) if given]
    yield f"      flags: [{', '.join(names)}]"
    yield f"      {outcome}"


def _local(one: WorkInput, inline: bytes | None) -> Iterator[str]:
    """Yield the memory of work."""
    if inline:
        yield from digit_lines("inline", inline, "      ")
        return
    spans = [_span(*sge, is_valid=not one.key or index > 0) for index, sge in enumerate(one.sges)]
    if spans:
        yield f"      {'into' if one.verb in SINK_WORK else 'from'}: [{', '.join(spans)}]"


def _span(index: int, offset: int, length: int, *, is_valid: bool) -> str:
    """An SGE; one without a valid key, or outside of its region, is of memory without a region."""
    area = AREAS[index]
    if is_valid and offset >= 0 and offset + length <= area.length:
        return f'"server.{AREA_NAMES[index]}[{offset}:{offset + length}]"'
    start = area.start + offset
    return f'"server.arena[{start}:{start + length}]"'


def _remote(one: WorkInput) -> str:
    """The memory of the peer that work names."""
    length = one.compare if one.verb == "FLUSH" else max(one.length, 1)
    return f'"client.peer[{one.offset}:{one.offset + length}]"'


def _playable(one: Input) -> Input:
    """Return work that names memory of the peer of a scenario."""
    if not isinstance(one, WorkInput):
        return one
    offset = one.offset if 0 <= one.offset < _PEER_SIZE // 2 else 0
    if one.verb == "FLUSH" and not 0 < one.compare < _PEER_SIZE // 2:
        return replace(one, offset=offset, compare=_EIGHT)
    return replace(one, offset=offset)


# Expectations.


class _Numbers(NamedTuple):
    """Numbers of the client in a running scenario."""

    va: int
    rkey: int
    window: int
    queue: int

    @classmethod
    def of(cls, text: str) -> "_Numbers":
        client = Testbed(read(text)).machines["client"]
        peer, window = client.buffers["peer"], client.buffers["window"]
        queue = next((srq.number for srq in client.srqs.values()), 0)
        return cls(peer.iova, peer.key, window.key, queue)

    def request(self, one: Request) -> Request:
        """Return a request of the model with these numbers."""
        rkey = self.rkey if one.rkey else 0
        if IETH in request_headers(one):
            rkey = self.window
        va = one.va - PEER_VA + self.va if one.va else 0
        return one._replace(va=va, rkey=rkey, srq=self.queue)


def _expectations(run: RequesterRun, numbers: _Numbers, *, timed: bool) -> Iterator[str]:
    yield "expect:"
    if timed:
        yield f"  time: {format_time(run.end)}"
    yield "  memory:"
    yield from memory_lines(bytes(run.model.memory))
    yield f"  counters: {{server.frames: {len(run.requests)}}}"
    if run.requests:
        yield "  packets:"
    for (fields, payload), count in _counted(map(numbers.request, run.requests)).items():
        yield f"    - where: {{{fields}}}"
        yield "      sent by: server"
        yield from digit_lines("payload", payload, "      ") if payload else ("      payload: 0",)
        yield f"      count: {count}"
    yield f"  states: {{client/a: ERR, server/a: {run.model.state.name}}}"


def _counted(requests: Iterable[Request]) -> Counter[tuple[str, bytes]]:
    """Count equal requests, by their fields and their payload."""
    counts = Counter[tuple[str, bytes]]()
    for one in requests:
        fields: Mapping[str, Any] = {
            "bth.opcode": Opcode(one.opcode).name,
            "bth.psn": one.psn,
            "bth.ackreq": one.ackreq,
        }
        for header in request_headers(one).values():
            fields = {**fields, **header_values(header)}
        text = ", ".join(f"{name}: {value}" for name, value in fields.items())
        counts[text, one.payload] += 1
    return counts
