"""State-level fuzzing: sequences of verbs, packets, faults and time on connected queue pairs.

:class:`StateFuzzer` searches with Hypothesis (the extra ``rdmawire[hypothesis]``): its stateful
machinery, its database and its shrinker. What it finds is played again without Hypothesis by
:func:`replay`::

    fuzzer = StateFuzzer(seed=1, rules={0: bugged})
    for finding in fuzzer.run(100):
        print(finding.violation.signature, finding.case["steps"])
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.fuzzer import Batch, BatchFuzzer, Found, Frame, Spec, adapter, check_settings
from rdmawire.fuzz.minimise import Trials
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.state_network import TimedFrame
from rdmawire.fuzz.state_session import MAX_STEPS, SequenceStep, StateSession, checked, played
from rdmawire.fuzz.state_setup import MAX_HOSTS, SERVICES, StateSetup
from rdmawire.fuzz.work_model import Problem
from rdmawire.ib.rules import Rules
from rdmawire.terminal import quote

RUNS_AT_ONCE: Final = 20
"""Sequences that are played between two calls of ``limit``."""
_SEEDS: Final = 1 << 20


class StateFinding(NamedTuple):
    """A violation, the shortest sequence found that shows it, and its frames.

    ``case`` has JSON values: ``setup`` and ``steps``. ``frames`` are those on the link, and those
    that the fuzzer injected, with their times in ns.
    """

    violation: Violation
    case: dict[str, Any]
    frames: list[TimedFrame]


def violation_of(problem: Problem, steps: Sequence[SequenceStep]) -> Violation:
    """Describe a problem that the last of ``steps`` has shown.

    Its signature is the rule and the kind of that step.
    """
    rule, clause, expected, happened = problem
    signature = f"{rule} | {steps[-1]['step']}"
    return Violation(len(steps) - 1, rule, expected, happened, clause, signature)


def case_of(session: StateSession) -> dict[str, Any]:
    """Return what was played in a session as JSON values."""
    return {"setup": session.setup.as_json(), "steps": [dict(step) for step in session.steps]}


class StateFuzzer:
    """Searches sequences of up to ``max_steps`` steps that violate a rule.

    - ``seed``: of all random choices; it is reported at the start.
    - ``database``: a folder where Hypothesis keeps failing examples, to try them first next time.
    - ``rules``: the rules of hosts by index; others have the standard's.
    - ``profiles``: the profile of each host, two or three.
    - ``services``: those of connections, from :data:`~rdmawire.fuzz.state_setup.SERVICES`.
    - ``derandomized``: ignore the seed and the database, and play the same sequences always.
    - ``shrinks``: whether findings are made short, which takes more time than to find them.
    - ``report``: called with each line of progress.

    Raises :class:`FuzzError` without Hypothesis. ``runs`` and ``executed`` count sequences and
    steps, those of shrinking included.
    """

    def __init__(
        self,
        seed: int = 0,
        database: Path | None = None,
        max_steps: int = 50,
        rules: Mapping[int, Rules] | None = None,
        profiles: Sequence[str] = ("ibta", "ibta", "ibta"),
        *,
        services: Sequence[str] = SERVICES,
        derandomized: bool = False,
        shrinks: bool = True,
        report: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.seed = seed
        self.database = database
        self.max_steps = max_steps
        self.rules = {} if rules is None else dict(rules)
        self.profiles = tuple(profiles)
        self.services = tuple(services)
        self.derandomized = derandomized
        self.shrinks = shrinks
        self.runs = self.executed = 0
        self.findings: list[StateFinding] = []
        self._report = report
        self._search = _search()

    @property
    def known(self) -> frozenset[str]:
        """The signatures of the findings so far: they are not searched again."""
        return frozenset(finding.violation.signature for finding in self.findings)

    def run(self, limit: int | Callable[[], bool]) -> list[StateFinding]:
        """Play sequences; return the findings, one for each signature.

        ``limit`` is how many sequences to play, or a function that says whether to stop; it is
        called after each :data:`RUNS_AT_ONCE` sequences.
        """
        self._report("derandomized" if self.derandomized else f"seed {self.seed}")
        for turn, runs in enumerate(_portions(limit)):
            found = self._search(self, runs, self.seed * _SEEDS + turn)
            self.findings += [self._finding(case) for case in found]
            if self.derandomized and not found:
                break
        return self.findings

    def _finding(self, case: dict[str, Any]) -> StateFinding:
        """Make a finding of a case that shows a violation, shorter if wanted."""
        violation, frames = replay(case, self.rules)
        if violation is None:
            raise FuzzError("a sequence showed a violation only once: it is not deterministic")
        if self.shrinks:
            case = shortened(case, violation.signature, self.rules)
            violation, frames = replay(case, self.rules)
            assert violation is not None
        return StateFinding(violation, case, frames)


def _search() -> Callable[..., list[dict[str, Any]]]:
    """Return the search, which needs Hypothesis."""
    try:
        search: Callable[..., list[dict[str, Any]]]
        search = import_module("rdmawire.fuzz.state_machine").search
    except ImportError as error:
        raise FuzzError(
            "state-level fuzzing needs Hypothesis: pip install 'rdmawire[hypothesis]'"
        ) from error
    return search


def _portions(limit: int | Callable[[], bool]) -> Any:
    """Yield how many sequences to play next, until the limit is reached."""
    if not isinstance(limit, int):
        while not limit():
            yield RUNS_AT_ONCE
        return
    while limit > 0:
        yield min(limit, RUNS_AT_ONCE)
        limit -= RUNS_AT_ONCE


def replay(
    case: Any, rules: Mapping[int, Rules] | None = None
) -> tuple[Violation | None, list[TimedFrame]]:
    """Play a case again; return its violation, if it shows one, and its frames.

    ``rules`` are those of hosts by index. Raises :class:`FuzzError` for anything but a case.
    """
    setup, steps = _parts(case)
    session, problem = played(setup, steps, rules)
    shown = None if problem is None else violation_of(problem, session.steps)
    return shown, session.frames


def _parts(case: Any) -> tuple[StateSetup, list[SequenceStep]]:
    """Return the setup and the steps of a case."""
    if not isinstance(case, dict) or not isinstance(case.get("steps"), list):
        raise FuzzError("case: expected an object with a setup and a list of steps")
    if len(case["steps"]) > MAX_STEPS:
        raise FuzzError(f"case: more than {MAX_STEPS} steps")
    for step in case["steps"]:
        checked(step)
    return StateSetup.from_json(case.get("setup")), case["steps"]


def shortened(
    case: dict[str, Any],
    signature: str,
    rules: Mapping[int, Rules] | None = None,
    trials: Trials | None = None,
) -> dict[str, Any]:
    """Return the case with all steps removed that its violation does not need.

    Runs of steps are removed, long ones first (delta debugging), as ``trials`` allow.
    """
    trials = Trials() if trials is None else trials

    def shows(other: dict[str, Any]) -> Violation | None:
        shown = replay(other, rules)[0] if other["steps"] and trials.take() else None
        return shown if shown is not None and shown.signature == signature else None

    size = max(len(case["steps"]) // 2, 1)
    while size:
        case, removed = _without_runs(case, size, shows)
        size = size if removed and size == 1 else size // 2
    return case


def _without_runs(
    case: dict[str, Any], size: int, shows: Callable[[dict[str, Any]], Violation | None]
) -> tuple[dict[str, Any], bool]:
    """Remove runs of ``size`` steps, from the end on; return whether any was removed.

    ``shows`` returns the violation of a case if it is the same one.
    """
    removed = False
    for start in range(len(case["steps"]) - size, -1, -1):
        steps = case["steps"]
        if start + size > len(steps):
            continue
        fewer = {**case, "steps": steps[:start] + steps[start + size :]}
        if (shown := shows(fewer)) is not None:
            case = {**fewer, "steps": fewer["steps"][: shown.place + 1]}
            removed = True
    return case, removed


class SequenceFuzzer(BatchFuzzer):
    """The target ``state`` of campaigns: sequences of steps on connected queue pairs.

    A specification has ``profile``, that of all hosts, ``bug``, the name of a planted bug of the
    first host, and ``service``: one of :data:`~rdmawire.fuzz.state_setup.SERVICES` in lower case,
    or ``all`` (the default). Raises :class:`FuzzError` for unknown names, and without Hypothesis.

    Which sequences a seed plays depends on the version of Hypothesis and on the modules that are
    loaded; a finding has the sequence itself.
    """

    def __init__(self, spec: Spec) -> None:
        check_settings(spec, ("profile", "bug", "service"))
        self._rules = {0: adapter(spec).rules}
        self._profiles = (str(spec.get("profile", "ibta")),) * MAX_HOSTS
        self._services = _services(str(spec.get("service", "all")))
        _search()

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        """Play sequences, :data:`RUNS_AT_ONCE` of them with a seed of their own."""
        for start in range(first, first + runs, RUNS_AT_ONCE):
            yield self._some(seed, start, min(RUNS_AT_ONCE, first + runs - start))

    def _some(self, seed: int, first: int, runs: int) -> Batch:
        own = Random(f"{seed}/{first}").getrandbits(48)  # noqa: S311  must be repeatable
        fuzzer = StateFuzzer(
            own, rules=self._rules, profiles=self._profiles, services=self._services, shrinks=False
        )
        found = [Found(one.violation, one.case, first) for one in fuzzer.run(runs)]
        return Batch(first, runs, fuzzer.executed, found)

    def minimised(self, found: Found, trials: Trials | None = None) -> Found:
        """Return a finding without the steps that its violation does not need.

        Steps are removed as ``trials`` allow.
        """
        case = shortened(found.case, found.violation.signature, self._rules, trials)
        violation, _ = replay(case, self._rules)
        return found if violation is None else Found(violation, case, found.run)

    def replay(self, case: Any) -> tuple[Violation | None, list[Frame]]:
        """Play a case again. Its frames are those on the link and those that were injected."""
        violation, frames = replay(case, self._rules)
        return violation, [Frame(frame.time, frame.data, sent=True) for frame in frames]

    def describe(self, case: Any) -> list[str]:
        """Return a line for each step."""
        return describe(case)


def _services(name: str) -> tuple[str, ...]:
    if name == "all":
        return SERVICES
    if name.upper() not in SERVICES:
        known = ", ".join(one.lower() for one in SERVICES)
        raise FuzzError(f"service {quote(name)} is none of {known}, all")
    return (name.upper(),)


def describe(case: Any) -> list[str]:
    """Return a line for each step of a case."""
    _, steps = _parts(case)
    return [_line(step) for step in steps]


def _line(step: SequenceStep) -> str:
    arguments = (f"{name} {value}" for name, value in step.items() if name != "step" and value)
    return ", ".join((str(step["step"]), *arguments))
