"""The oracle for the other role: the target is the requester, and the fuzzer its responder.

It posts work on the target and answers it, and compares with :class:`RequesterModel` after each
input: the requests sent, the completions, the bytes of memory, and the state of the queue pair.
"""

from typing import Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.exchange import Expected, Reply, Request
from rdmawire.fuzz.inputs import AnswerInput, Input, WaitInput, WorkInput
from rdmawire.fuzz.oracle import Mismatch, SessionRecord, different_bytes, different_counters
from rdmawire.fuzz.requester_frames import AnswerBuilder, is_unusual, reply_to, request_from
from rdmawire.fuzz.requester_model import Sent
from rdmawire.fuzz.requester_services import fresh_requester
from rdmawire.fuzz.setup import Network, Setup
from rdmawire.fuzz.target import CountingRequesterTarget, RequesterTarget
from rdmawire.fuzz.target_results import (
    check_completions,
    check_memory,
    checked_frame,
    completions_of,
    frames_of,
    numbers_of,
    place_of,
)
from rdmawire.verbs.profile import IBTA, Profile


class RequesterSession(SessionRecord):
    """Plays work, responses and time on one queue pair of a target.

    ``profile`` has the differences from ``ibta`` that are accepted (:mod:`.profile_differences`).
    With ``counters``, those of the target are compared at the end of each case; :class:`FuzzError`
    if it shows none.
    """

    def __init__(
        self, target: RequesterTarget, profile: Profile = IBTA, *, counters: bool = False
    ) -> None:
        super().__init__()
        self._target = target
        self._counting = _counting(target) if counters else None
        self._profile = profile
        self._builders: dict[Network, AnswerBuilder] = {}

    def begin(self, setup: Setup) -> None:
        """Make a fresh queue pair and a fresh model."""
        target = self._target
        target.reset(setup)
        numbers = numbers_of(target, setup)
        builder = self._builders.get(setup.network)
        if builder is None:
            builder = AnswerBuilder(*place_of(target, setup), numbers)
            self._builders[setup.network] = builder
        builder.numbers = numbers
        self._builder = builder
        self.model = fresh_requester(setup, self._profile)
        builder.service = self.model.wire
        builder.flush_twice = self._profile.flush_icrc_covers_headers_twice
        self.frames.clear()

    @property
    def failed(self) -> bool:
        """Whether the model's queue pair is in the error state."""
        return self.model.failed

    def play(self, one: Input) -> Mismatch | None:
        """Play one input; return the first difference from the model, or ``None``.

        Work for which the send queue has no room is left out. Raises :class:`FuzzError` for inputs
        of the other role.
        """
        if isinstance(one, AnswerInput):
            frames, sent = self._answer(one)
        elif isinstance(one, WorkInput):
            if not self.model.room:
                return None
            accepts = self.model.accepts(one)
            sent = self.model.post(one) if accepts else _REFUSED
            if self._target.post_send(one) is not accepts:
                outcomes = ("refused",), ("accepted",)
                return Mismatch("a send", outcomes[accepts], outcomes[not accepts], _expected(sent))
            frames = self._waited(0)
        elif isinstance(one, WaitInput):
            sent, frames = self.model.wait(one.ns), self._waited(one.ns)
        else:
            raise FuzzError(f"a requester has no input of kind {one.kind}")
        self.reached.add((one.kind, sent.why))
        if self.recording:
            self.frames += [(True, frame) for frame in frames]
        return self._compared(sent, frames)

    def end(self) -> Mismatch | None:
        """Compare the counters of the target with those of the model."""
        if self._counting is None:
            return None
        return different_counters(self.model.counters, self._counting.requester_counters())

    def _answer(self, one: AnswerInput) -> tuple[list[bytes], Sent]:
        model = self.model
        packet = model.unacked + one.ahead
        psn, msn = model.psn(packet), (model.msn(packet + 1) + one.msn) % (1 << 24)
        frame = self._builder.answer(one, psn, msn)
        reply = self._reply(one, frame, psn, msn)
        if self.recording:
            self.frames.append((False, frame))
        frames = frames_of(self._target, "send", self._target.send(frame))
        self.executed += 1
        if reply is None:
            why = "a packet that is damaged, or no response of this service, is dropped"
            return frames, Sent((), "IBA 9.6", why)
        return frames, model.answer(reply)

    def _waited(self, ns: int) -> list[bytes]:
        return frames_of(self._target, "wait", self._target.wait(ns))

    def _reply(self, one: AnswerInput, frame: bytes, psn: int, msn: int) -> Reply | None:
        if is_unusual(one):
            return self._builder.answer_in(frame)
        return reply_to(one, psn, msn, self.model.wire)

    def _compared(self, sent: Sent, frames: list[bytes]) -> Mismatch | None:
        model, target, expected = self.model, self._target, _expected(sent)
        wanted = sent.requests
        if (frames or wanted) and not self._match_requests(wanted, frames):
            return Mismatch("requests", wanted, tuple(map(self._request_from, frames)), expected)
        done = completions_of(target, target.completions())
        due, model.completions = model.completions, []
        if done != due:
            check_completions(target, done)
            return Mismatch("completions", tuple(due), tuple(done), expected)
        found = target.memory()
        if model.memory != found:
            check_memory(target, found, model.memory)
            return Mismatch("memory", *different_bytes(model.memory, found), expected)
        if (state := target.state()) is not model.state:
            return Mismatch("state", (model.state.name,), (state.name,), expected)
        return None

    def _match_requests(self, wanted: tuple[Request, ...], frames: list[bytes]) -> bool:
        """Compare frames with requests, first as bytes, for speed; return if they are equal."""
        if len(wanted) != len(frames):
            return False
        for one, frame in zip(wanted, frames, strict=True):
            if self._builder.request(one) == frame:
                continue
            if self._request_from(frame) != one:
                return False
            self._builder.learn_path(frame)
        return True

    def _request_from(self, frame: bytes) -> Request | None:
        builder, frame = self._builder, checked_frame(self._target, frame)
        return request_from(frame, builder.medium, flush_twice=builder.flush_twice)


def _counting(target: RequesterTarget) -> CountingRequesterTarget:
    if not isinstance(target, CountingRequesterTarget):
        raise FuzzError(
            f"{target.name}: no method requester_counters, so counters cannot be compared"
        )
    return target


_REFUSED: Final = Sent((), "IBA 11.4.1.1", "the service has no such work: posting it fails")


def _expected(sent: Sent) -> Expected:
    return Expected((), sent.clause, sent.why)
