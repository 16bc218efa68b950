"""Fuzzers: what a campaign runs. Each plays random cases from a seed, and minimises what it finds.

A :class:`Fuzzer` is made from a specification of JSON values, so that another process or another
machine can make the same one. Run number ``n`` of a seed always plays the same case.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from rdmawire.capture import LinkType
from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.inputs import Case, Input, PacketInput
from rdmawire.fuzz.minimise import Trials, minimise
from rdmawire.fuzz.oracle import (
    Mismatch,
    Player,
    Session,
    Violation,
    begin,
    end,
    judge,
    play,
    violation,
)
from rdmawire.fuzz.planted_bugs import planted, planted_rules
from rdmawire.fuzz.profile_differences import ACCEPT, REQUESTER_DIFFERENCES, accepted
from rdmawire.fuzz.replay_scenario import scenario_text
from rdmawire.fuzz.requester_inputs import RequesterInputs, random_requester_setup
from rdmawire.fuzz.requester_oracle import RequesterSession
from rdmawire.fuzz.requester_scenario import requester_scenario
from rdmawire.fuzz.responder_inputs import ResponderInputs, random_setup
from rdmawire.fuzz.scenario_text import passes
from rdmawire.fuzz.service_model import ALL, requester_type, services_named
from rdmawire.fuzz.setup import Setup
from rdmawire.fuzz.target import RequesterTarget, Target
from rdmawire.ib.cm import STANDARD as STANDARD_CM
from rdmawire.ib.cm import CMRules
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.terminal import quote, suggest
from rdmawire.verbs.profile import PROFILES, Profile
from rdmawire.wire.roce import Medium

Spec = Mapping[str, Any]
"""What is fuzzed, as JSON values: ``kind``, and what that kind needs."""

MAX_INPUTS: Final = 128
"""Inputs of a random case."""


class Found(NamedTuple):
    """A violation, the case that shows it (JSON values), and the run that found it."""

    violation: Violation
    case: dict[str, Any]
    run: int


class Batch(NamedTuple):
    """The result of ``runs`` runs from run ``first`` on.

    It has the packets (or parser calls) ``executed``, and what was ``found``.

    ``reached`` are the different behaviours that the runs reached, as far as the fuzzer sees them.
    """

    first: int
    runs: int
    executed: int
    found: list[Found]
    reached: frozenset[Any] = frozenset()


def joined(first: int, parts: Iterable[Batch]) -> Batch:
    """Return consecutive batches as one; the first of them begins with the run ``first``."""
    runs, executed, found, reached = 0, 0, list[Found](), set[Any]()
    for part in parts:
        runs += part.runs
        executed += part.executed
        found += part.found
        reached |= part.reached
    return Batch(first, runs, executed, found, frozenset(reached))


class Frame(NamedTuple):
    """One frame of a replay: ``time`` (ns), ``data``, and ``sent``: whether the target sent it.

    ``link_type`` is that of its link.
    """

    time: int
    data: bytes
    sent: bool
    link_type: int = LinkType.ETHERNET


class Fuzzer(Protocol):
    """Something that plays random cases and finds violations."""

    def check(self) -> None:
        """Raise :class:`FuzzError` if the target cannot be fuzzed at all: a program is missing."""
        ...

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        """Play the runs ``first`` to ``first + runs - 1`` of a seed, in this order.

        Yields what some of them did as soon as it is known: a caller that stops loses nothing.
        """
        ...

    def batch(self, seed: int, first: int, runs: int) -> Batch:
        """Play the same runs; return all that they did."""
        ...

    def minimised(self, found: Found, trials: Trials | None = None) -> Found:
        """Return a finding with the smallest case that shows the same violation.

        Cases are played as ``trials`` allow: the finding itself may be returned.
        """
        ...

    def replay(self, case: Any) -> tuple[Violation | None, list[Frame]]:
        """Play a case of a finding. Return its violation, if it shows one, and its frames."""
        ...

    def frames(self, case: Any) -> list[Frame]:
        """Return the frames of a case."""
        ...

    def describe(self, case: Any) -> list[str]:
        """Return a line for each input of a case."""
        ...


@runtime_checkable
class ScenarioFuzzer(Protocol):
    """A fuzzer whose findings can be scenarios of ``rdmawire run``."""

    @property
    def is_software_rnic(self) -> bool:
        """Whether the target is the software RNIC, which plays such scenarios."""
        ...

    def scenario(self, case: Any, shown: Violation) -> str:
        """Return the text of a scenario that plays a case on the host ``server``.

        Raises :class:`FuzzError` for a case that a scenario cannot play.
        """
        ...

    def passes(self, text: str, *, healthy: bool = False) -> bool:
        """Whether a scenario passes if ``server`` has the rules of the target.

        With ``healthy`` it has those of the standard. Raises :class:`FuzzError` for a text that is
        no scenario.
        """
        ...


class BatchFuzzer:
    """What all fuzzers share: parts can be joined to one batch, and a replay has the frames."""

    def check(self) -> None:
        """Most targets can always be fuzzed."""

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        """Play runs; yield what each did."""
        raise NotImplementedError

    def batch(self, seed: int, first: int, runs: int) -> Batch:
        """Play the runs ``first`` to ``first + runs - 1`` of a seed."""
        return joined(first, self.parts(seed, first, runs))

    def replay(self, case: Any) -> tuple[Violation | None, list[Frame]]:
        """Play a case of a finding."""
        raise NotImplementedError

    def frames(self, case: Any) -> list[Frame]:
        """Return the frames of a case, which is played for that."""
        return self.replay(case)[1]


class CaseFuzzer(BatchFuzzer):
    """What both roles share: random cases are played beside a model, minimised and replayed."""

    _target: Target
    _session: Player

    def _new_session(self) -> Player:
        raise NotImplementedError

    def _setup(self, random: Random, run: int) -> Setup:
        """Draw the setup of a run."""
        raise NotImplementedError

    def _inputs(self, random: Random) -> Callable[[], Input]:
        """Return what draws the next input of the case that the session has begun."""
        raise NotImplementedError

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        """Play runs; each has a setup and up to :data:`MAX_INPUTS` inputs of its own."""
        session = self._session
        for run in range(first, first + runs):
            before, session.reached = session.executed, set()
            found = self._run(seed, run)
            executed, reached = session.executed - before, frozenset(session.reached)
            yield Batch(run, 1, executed, [found] if found else [], reached)

    def _run(self, seed: int, run: int) -> Found | None:
        random = Random(f"{seed}/{run}")  # noqa: S311  must be repeatable
        session, setup = self._session, self._setup(random, run)
        if (mismatch := begin(session, setup)) is not None:
            return Found(violation(0, None, mismatch), Case(setup, ()).as_json(), run)
        draw, played = self._inputs(random), list[Input]()
        while len(played) < MAX_INPUTS and not (session.failed and random.random() < 0.5):
            one = draw()
            played.append(one)
            mismatch = play(session, one)
            if mismatch is not None:
                return self._found(setup, played, mismatch, run)
        mismatch = end(session)
        return None if mismatch is None else self._found(setup, played, mismatch, run)

    def _found(self, setup: Setup, played: list[Input], mismatch: Mismatch, run: int) -> Found:
        """Describe a difference after the last input that was played.

        If the target shows a difference without frames that wait, too, it is described instead.
        """
        broken, case = violation(len(played) - 1, played[-1], mismatch), Case(setup, tuple(played))
        plain = case.with_inputs([_with_room(one) for one in played])
        if plain != case and (shown := judge(self._target, plain, self._new_session())):
            broken, case = shown, plain.with_inputs(plain.inputs[: shown.place + 1])
        return Found(broken, case.as_json(), run)

    def minimised(self, found: Found, trials: Trials | None = None) -> Found:
        """Return a finding with fewer and simpler inputs, as ``trials`` allow."""
        case, session = Case.from_json(found.case), self._new_session()
        case, shown = minimise(self._target, case, found.violation, session, trials)
        return Found(shown, case.as_json(), found.run)

    def replay(self, case: Any) -> tuple[Violation | None, list[Frame]]:
        """Play a case; its inputs are a microsecond apart."""
        session = self._new_session()
        session.recording = True
        played = Case.from_json(case)
        shown = judge(self._target, played, session)
        link = _LINKS[played.setup.network.medium]
        frames = [
            Frame(number * FRAME_INTERVAL_NS, data, sent, link)
            for number, (sent, data) in enumerate(session.frames)
        ]
        return shown, frames

    @property
    def is_software_rnic(self) -> bool:
        """Whether the target is the software RNIC."""
        return isinstance(self._target, EngineTarget)

    def passes(self, text: str, *, healthy: bool = False) -> bool:
        """Whether a scenario passes if ``server`` has the rules of the target, or healthy ones."""
        target = self._target
        if isinstance(target, EngineTarget) and not healthy:
            return passes(text, target.rules)
        return passes(text)

    def describe(self, case: Any) -> list[str]:
        """Return a line for each input."""
        return [str(one) for one in Case.from_json(case).inputs]


def _with_room(one: Input) -> Input:
    """A packet after which the target has room for all frames; another input as it is."""
    return replace(one, room=None) if isinstance(one, PacketInput) else one


def _check_inputs(case: Any) -> None:
    """Raise :class:`FuzzError` for a case without inputs, which a scenario cannot play."""
    if not Case.from_json(case).inputs:
        raise FuzzError("the target raises an exception before the first input")


class EngineFuzzer(CaseFuzzer):
    """Fuzzes a queue pair of the software RNIC by packets.

    ``profile`` and ``bug`` are names, of a profile and of a planted bug; ``service`` is one of
    :data:`rdmawire.fuzz.service_model.SERVICES`, or ``all`` for each in turn (the default).
    ``accept`` says which differences of the profile from ``ibta`` are no findings, one of
    :data:`rdmawire.fuzz.profile_differences.ACCEPT`. With ``counters`` (any true value), counters
    are compared (:data:`rdmawire.fuzz.target.COUNTERS`). ``target`` is used instead of the adapter
    of that specification; its default service is ``rc``. Raises :class:`FuzzError` for unknown
    names.
    """

    def __init__(self, spec: Spec, target: Target | None = None) -> None:
        usual = ALL if target is None else "rc"
        self._services = services_named(str(spec.get("service", usual)))
        self._spec = spec
        self._target = _engine(spec, "accept", "counters") if target is None else target
        profile = _profile(str(spec.get("profile", "ibta")))
        self._accepted = accepted(profile, str(spec.get("accept", ACCEPT[0])))
        self._session: Session = self._new_session()

    def _new_session(self) -> Session:
        return Session(self._target, self._accepted, counters=bool(self._spec.get("counters")))

    def _setup(self, random: Random, run: int) -> Setup:
        return random_setup(random, self._services[run % len(self._services)])

    def _inputs(self, random: Random) -> Callable[[], Input]:
        session = self._session
        observed, holds = session.observed is not None, session.holding is not None
        return ResponderInputs(random, session.model, receives=observed, holds=holds).next

    def scenario(self, case: Any, shown: Violation) -> str:
        """Return the text of a scenario; the server has the profile of the specification."""
        _check_inputs(case)
        profile, bug = (str(self._spec.get(name, "")) for name in ("profile", "bug"))
        return scenario_text(
            Case.from_json(case),
            shown,
            profile=profile or "ibta",
            bug=bug,
            accepted=self._accepted,
        )


class RequesterFuzzer(CaseFuzzer):
    """Fuzzes the requester of the software RNIC: it posts work, and answers it.

    ``profile``, ``bug``, ``service``, ``accept`` and ``counters`` are those of
    :class:`EngineFuzzer`; the counters are :data:`rdmawire.fuzz.target.REQUESTER_COUNTERS`.
    ``target`` is used instead of the adapter of that specification; its default service is ``rc``.
    Raises :class:`FuzzError` for unknown names.
    """

    def __init__(self, spec: Spec, target: RequesterTarget | None = None) -> None:
        usual = ALL if target is None else "rc"
        services = services_named(str(spec.get("service", usual)))
        self._spec = spec
        self._services = [requester_type(service) for service in services]
        engine = None if target is not None else _engine(spec, "accept", "counters")
        self._target: RequesterTarget = target or engine  # type: ignore[assignment]
        profile = _profile(str(spec.get("profile", "ibta")))
        accept = str(spec.get("accept", ACCEPT[0]))
        self._accepted = accepted(profile, accept, REQUESTER_DIFFERENCES)
        self._session: RequesterSession = self._new_session()

    def _new_session(self) -> RequesterSession:
        return RequesterSession(
            self._target, self._accepted, counters=bool(self._spec.get("counters"))
        )

    def _setup(self, random: Random, run: int) -> Setup:
        return random_requester_setup(random, self._services[run % len(self._services)])

    def _inputs(self, random: Random) -> Callable[[], Input]:
        return RequesterInputs(random, self._session.model).next

    def scenario(self, case: Any, shown: Violation) -> str:
        """Return the text of a scenario; the server has the profile of the specification."""
        _check_inputs(case)
        return requester_scenario(
            Case.from_json(case),
            shown,
            profile=str(self._spec.get("profile", "ibta")),
            bug=str(self._spec.get("bug", "")),
            rules=adapter(self._spec).rules,
            accepted=self._accepted,
        )


_LINKS: Final = {
    Medium.ETHERNET: LinkType.ETHERNET,
    Medium.INFINIBAND: LinkType.INFINIBAND,
}
FRAME_INTERVAL_NS: Final = 1000
"""Nanoseconds between two frames of a replay."""


class Adapter(NamedTuple):
    """The adapter of a specification: rules and profile, and a name for reports."""

    rules: Rules
    profile: Profile
    name: str


def adapter(spec: Spec) -> Adapter:
    """Return the adapter that a specification names by ``profile`` and ``bug``.

    Raises :class:`FuzzError` for an unknown name.
    """
    rules, bug = STANDARD, spec.get("bug")
    if bug is not None:
        rules = planted_rules(str(bug))
    return Adapter(rules, _profile(str(spec.get("profile", "ibta"))), _name(spec))


def manager(spec: Spec) -> tuple[Adapter, CMRules]:
    """Return the adapter of a specification, and the rules of its connection manager.

    Raises :class:`FuzzError` for an unknown name.
    """
    bug = spec.get("bug")
    if bug is None:
        return adapter(spec), STANDARD_CM
    rules: CMRules | None = planted(str(bug)).cm
    if rules is None:
        return adapter(spec), STANDARD_CM
    healthy = adapter({name: value for name, value in spec.items() if name != "bug"})
    return healthy._replace(name=_name(spec)), rules


def _engine(spec: Spec, *more: str) -> EngineTarget:
    check_settings(spec, ("profile", "bug", "service", *more))
    rules, profile, name = adapter(spec)
    return EngineTarget(rules=rules, profile=profile, name=name)


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise FuzzError(
            f"no profile is named {quote(name)}{suggest(name, PROFILES)}: {', '.join(PROFILES)}"
        )
    return PROFILES[name]


def _name(spec: Spec) -> str:
    """Describe what is fuzzed in a few words."""
    parts = [f"{name} {value}" for name, value in spec.items() if name != "kind"]
    return ", ".join([str(spec.get("kind")), *parts])


def check_settings(spec: Spec, known: Sequence[str]) -> None:
    """Raise :class:`FuzzError` for a setting that a kind of fuzzer does not have."""
    for name in spec:
        if name != "kind" and name not in known:
            raise FuzzError(
                f"{spec['kind']} has no setting {quote(name)}: it has {', '.join(known)}"
            )


def _from_module(module: str, name: str) -> Callable[[Spec], Fuzzer]:
    """Return a function that imports a module only to make a fuzzer."""

    def make(spec: Spec) -> Fuzzer:
        made: Fuzzer = getattr(import_module(f"rdmawire.fuzz.{module}"), name)(spec)
        return made

    return make


class FuzzerKind(NamedTuple):
    """A kind of fuzzer: what makes one from a specification, and what it fuzzes, in a line."""

    make: Callable[[Spec], Fuzzer]
    about: str


FUZZERS: Final = {
    "engine": FuzzerKind(
        EngineFuzzer, "a queue pair of the software RNIC, by packets from its peer"
    ),
    "requester": FuzzerKind(
        RequesterFuzzer,
        "the requester of the software RNIC, by work that it posts and responses of its peer",
    ),
    "state": FuzzerKind(
        _from_module("state_fuzzer", "SequenceFuzzer"),
        "connected queue pairs, by sequences of verbs, packets, faults and time",
    ),
    "cm": FuzzerKind(
        _from_module("cm_fuzzer", "CMFuzzer"),
        "a connection manager, by messages of its peer, calls of its owner and its timers",
    ),
    "mpa": FuzzerKind(
        _from_module("mpa_fuzzer", "MPAFuzzer"),
        "the MPA reader of the dissector, by TCP connections, cut into segments and damaged in "
        "many ways",
    ),
    "parser": FuzzerKind(
        _from_module("parser_fuzzer", "function_fuzzer"),
        "a Python function that takes bytes, by mutants of captured frames",
    ),
    "command": FuzzerKind(
        _from_module("parser_fuzzer", "command_fuzzer"),
        "a command that reads a pcap, such as tshark, by mutants of captured frames",
    ),
    "codecs": FuzzerKind(
        _from_module("parser_fuzzer", "codec_fuzzer"),
        "the codec against the layers of Construct and Scapy, by mutants of captured frames",
    ),
    "dissectors": FuzzerKind(
        _from_module("parser_fuzzer", "dissector_fuzzer"),
        "the dissector against tshark, by mutants of captured RoCEv2 frames",
    ),
}
"""The kinds of fuzzers by name."""


def make_fuzzer(spec: Spec) -> Fuzzer:
    """Return the fuzzer of a specification. Raises :class:`FuzzError` for an unknown kind."""
    kind = str(spec.get("kind"))
    if kind not in FUZZERS:
        raise FuzzError(
            f"no target is named {quote(kind)}{suggest(kind, FUZZERS)}: {', '.join(FUZZERS)}"
        )
    return FUZZERS[kind].make(spec)
