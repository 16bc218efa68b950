"""Active automata learning: the Mealy machine of a system, from questions and answers.

The learner plays words (sequences of inputs) on a system, each from a reset, and builds a
hypothesis with AALpy (KV or L#). Then it searches for a word that the system answers otherwise
than the hypothesis: with words that tell apart the states of other machines, with random walks,
and with the Wp-method, which proves the hypothesis for systems with up to ``depth`` more states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.machine import MealyMachine, Word

ALGORITHMS: Final = ("kv", "lsharp")
_REPORT_EVERY: Final = 512
"""Queries between two reports of progress."""
MAX_OUTPUTS: Final = 500
"""Different outputs of a system, at most."""
_STAY_AWAY: Final = 0.9
"""Share of the steps of a walk that avoid sink states."""


class System(Protocol):
    """What is learned: a system with named inputs, that answers each with one output.

    :meth:`reset` makes a fresh object (a new queue pair, a new connection), not only its first
    state, so that nothing is left of the word before. :meth:`step` returns after everything that
    the input causes is done: a system over a network sends a barrier, a packet that is always
    answered, after each frame. Outputs are words without spaces at the ends, ``"`` or line ends;
    ``-`` means no answer. They are bounded: sequence numbers are relative and clamped, else the
    machine has no end.
    """

    @property
    def name(self) -> str:
        """A name for reports."""
        ...

    @property
    def inputs(self) -> Sequence[str]:
        """The alphabet: letters, digits, ``.``, ``+``, ``-`` and ``_``."""
        ...

    def reset(self) -> None:
        """Make a fresh object in its initial state."""
        ...

    def step(self, name: str) -> str:
        """Play one input; return the output."""
        ...


class MachineSystem:
    """A machine as a system: what was learned from a target that is not here."""

    def __init__(self, machine: MealyMachine, name: str = "machine") -> None:
        self.machine = machine
        self.name = name
        self.inputs = machine.inputs
        self._state = 0

    def reset(self) -> None:
        """Go to the initial state."""
        self._state = 0

    def step(self, name: str) -> str:
        """Take a transition."""
        output, self._state = self.machine.transitions[self._state][name]
        return output


class NonDeterminismError(FuzzError):
    """A system that answered the same inputs in two ways.

    ``word`` are the inputs, ``first`` the outputs at the first time, ``second`` those later; they
    differ in the last one.
    """

    def __init__(self, system: str, word: Word, first: Word, second: Word) -> None:
        shown = " ".join(word)
        super().__init__(
            f"{system} is not deterministic: {shown} was answered with {' '.join(first)}, "
            f"later with {' '.join(second)}"
        )
        self.word, self.first, self.second = word, first, second


class LearnProgress(NamedTuple):
    """How far learning is: words played, inputs in them, states of the hypothesis."""

    queries: int
    steps: int
    states: int


class Learned(NamedTuple):
    """A learned machine, minimal.

    ``queries`` words with ``steps`` inputs were played; the learner made ``rounds`` hypotheses.
    """

    machine: MealyMachine
    queries: int
    steps: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to learn.

    - ``algorithm``: ``"kv"`` or ``"lsharp"``.
    - ``depth``: the machine is correct if the system has at most this many states more.
    - ``walks``, ``walk_length``: random walks for each hypothesis, and inputs in each.
    - ``machines``: machines of other systems; their transitions and states are tested.
    - ``max_states``: learning fails beyond: outputs are not bounded, or the alphabet is too large.
    """

    algorithm: str = "kv"
    depth: int = 1
    walks: int = 500
    walk_length: int = 12
    machines: Sequence[MealyMachine] = ()
    max_states: int = 400

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise FuzzError(f"algorithm {self.algorithm!r}: use one of {', '.join(ALGORITHMS)}")
        if min(self.depth, self.walks, self.walk_length) < 0:
            raise FuzzError("depth, walks and walk_length are 0 or more")


@dataclass(slots=True)
class _Node:
    """One point of the tree of observations: the output of the input that leads here."""

    output: str
    following: dict[str, "_Node"] = field(default_factory=dict)


class Questions:
    """Plays words on a system, and remembers the answers: no word is played twice.

    A word whose beginning is answered otherwise than before raises :class:`NonDeterminismError`.
    """

    def __init__(
        self, system: System, report: Callable[[LearnProgress], None] | None = None
    ) -> None:
        self._system = system
        self._report = report
        self._root = _Node("")
        self._seen: set[str] = set()
        self.queries = self.steps = self.states = 0

    def outputs(self, word: Word) -> Word:
        """Return what ``word`` is answered with, from a reset."""
        known = self._known(word)
        return self._played(word) if known is None else known

    def _known(self, word: Word) -> Word | None:
        node, outputs = self._root, []
        for name in word:
            if (following := node.following.get(name)) is None:
                return None
            node = following
            outputs.append(node.output)
        return tuple(outputs)

    def _played(self, word: Word) -> Word:
        system, node = self._system, self._root
        system.reset()
        outputs: list[str] = []
        for name in word:
            outputs.append(system.step(name))
            if (following := node.following.get(name)) is None:
                following = node.following[name] = self._new(outputs[-1])
            if following.output != outputs[-1]:
                self._differs(word[: len(outputs)], outputs)
            node = following
        self.queries += 1
        self.steps += len(word)
        if not self.queries % _REPORT_EVERY:
            self.report()
        return tuple(outputs)

    def _new(self, output: str) -> _Node:
        self._seen.add(output)
        if len(self._seen) > MAX_OUTPUTS:
            raise FuzzError(
                f"{self._system.name} has more than {MAX_OUTPUTS} different outputs, such as "
                f"{output!r}: make its numbers relative, and clamp them"
            )
        return _Node(output)

    def _differs(self, word: Word, outputs: list[str]) -> None:
        first = self._known(word)
        assert first is not None
        raise NonDeterminismError(self._system.name, word, first, tuple(outputs))

    def report(self) -> None:
        """Call the progress function."""
        if self._report is not None:
            self._report(LearnProgress(self.queries, self.steps, self.states))


class _Sul:
    """The system as AALpy sees it: a SUL. AALpy reads the numbers for its own report."""

    num_queries = num_steps = num_cached_queries = 0

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def query(self, word: Any) -> list[str]:
        return list(self._questions.outputs(tuple(word)))


class _Equivalence:
    """The equivalence oracle, as AALpy sees it."""

    num_queries = num_steps = 0

    def __init__(self, questions: Questions, plan: Plan, random: Random) -> None:
        self._questions = questions
        self._plan = plan
        self._random = random
        self.rounds = 0

    def find_cex(self, hypothesis: Any) -> Word | None:
        """Return the shortest beginning of a test that shows a difference; ``None`` without one."""
        machine = _machine(hypothesis)
        self.rounds += 1
        self._questions.states = len(machine)
        self._questions.report()
        if len(machine) > self._plan.max_states:
            raise FuzzError(
                f"more than {self._plan.max_states} states: use fewer inputs, or shorter receives"
            )
        for word in self._tests(machine):
            found = self._questions.outputs(word)
            wanted = machine.outputs(word)
            if found != wanted:
                return word[: first_difference(found, wanted) + 1]
        return None

    def _tests(self, machine: MealyMachine) -> Iterator[Word]:
        for other in self._plan.machines:
            yield from known_words(other, machine.inputs)
        for _ in range(self._plan.walks):
            yield self._walk(machine)
        for depth in range(self._plan.depth + 1):
            yield from machine.tests(depth)

    def _walk(self, machine: MealyMachine) -> Word:
        """Return the access word of a random state, and a walk that avoids sink states."""
        random, inputs = self._random, machine.inputs
        starts = [state for state in range(len(machine)) if state not in machine.sinks] or [0]
        state = random.choice(starts)
        word = list(machine.access[state])
        for _ in range(random.randint(1, max(self._plan.walk_length, 1))):
            steps = machine.transitions[state]
            names = [name for name in inputs if steps[name].target not in machine.sinks]
            away = bool(names) and random.random() < _STAY_AWAY
            name = random.choice(names if away else inputs)
            word.append(name)
            state = steps[name].target
        return tuple(word)


def known_words(other: MealyMachine, inputs: Sequence[str]) -> Iterator[Word]:
    """Yield words that tell apart the states of another machine, over the inputs that both have."""
    common = [name for name in other.inputs if name in inputs]
    if common:
        yield from other.restricted(common).minimal().tests(0)


def first_difference(one: Word, other: Word) -> int:
    """Return the index of the first output that differs."""
    return next(
        index for index, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1
    )


def _machine(hypothesis: Any) -> MealyMachine:
    """The value of AALpy's machine."""
    rows = {
        id(state): {
            name: (state.output_fun[name], id(target)) for name, target in state.transitions.items()
        }
        for state in hypothesis.states
    }
    return MealyMachine.of(rows, id(hypothesis.initial_state))


def _algorithm(name: str) -> Callable[..., Any]:
    """Return the function of AALpy. Raises :class:`FuzzError` if AALpy is not installed."""
    try:
        from aalpy.learning_algs.deterministic.KV import run_KV
        from aalpy.learning_algs.deterministic.LSharp import run_Lsharp
    except ImportError:
        raise FuzzError("learning needs AALpy: pip install 'rdmawire[learn]'") from None
    function: Callable[..., Any] = {"kv": run_KV, "lsharp": run_Lsharp}[name]
    return function


def learn(
    system: System,
    *,
    random: Random,
    plan: Plan | None = None,
    progress: Callable[[LearnProgress], None] | None = None,
) -> Learned:
    """Learn the machine of ``system``. The same ``random`` asks the same questions.

    ``progress`` is called at each hypothesis and after every 512 words. Raises
    :class:`NonDeterminismError`, and :class:`FuzzError` without AALpy or for too many states.
    """
    plan = Plan() if plan is None else plan
    function = _algorithm(plan.algorithm)
    questions = Questions(system, progress)
    oracle = _Equivalence(questions, plan, random)
    options = {"extension_rule": "SepSeq", "separation_rule": "SepSeq"}
    hypothesis = function(
        list(system.inputs),
        _Sul(questions),
        oracle,
        automaton_type="mealy",
        cache_and_non_det_check=False,
        print_level=0,
        **(options if plan.algorithm == "lsharp" else {}),
    )
    machine = _machine(hypothesis).minimal()
    return Learned(machine, questions.queries, questions.steps, oracle.rounds)
