"""Litmus tests of :mod:`rdmawire.gpudirect.kernel.memory_model`: all outcomes, or one by a seed.

A test is a short program for each of a few agents. :func:`outcomes` tries every order in which
their steps can happen and stores become visible; :func:`outcome` follows one, drawn from a seed.
:data:`TESTS` says what each may result in.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Final, NamedTuple

from rdmawire.gpudirect.kernel.memory_model import Agent, MemoryTarget, Order, Scope, SharedMemory

Outcome = tuple[int, ...]
"""The values of the registers, in the order of the loads in the test."""


class Store(NamedTuple):
    """Store a number to a place."""

    place: str
    value: int


class Load(NamedTuple):
    """Load a number; a ``strong`` load (``ld.relaxed.sys``, ``volatile``) loads the latest."""

    place: str
    strong: bool = False


class Wait(NamedTuple):
    """Load again and again, always the latest, until the number is this one."""

    place: str
    value: int


class Fence(NamedTuple):
    """Wait until earlier stores are visible, and see what others stored."""

    scope: Scope = Scope.SYSTEM


class Flush(NamedTuple):
    """Let an agent (a device) read from the memory of ``owner``, which pushes its writes there."""

    agent: str
    owner: str


class Add(NamedTuple):
    """Add to a number, at once for all, and keep the value before."""

    place: str
    value: int


Step = Store | Load | Wait | Fence | Flush | Add


class Thread(NamedTuple):
    """An agent: its name, the order of its stores, where it runs, and its steps."""

    name: str
    order: Order
    owner: str
    steps: tuple[Step, ...]


class LitmusTest(NamedTuple):
    """A test: ``places`` are numbers of eight bytes, by name, with the owner of their memory.

    ``allowed`` are all outcomes that are possible. ``source`` says where the rule is from.
    ``wrong`` are outcomes that a program must not rely on not to happen: the forgotten fence.
    """

    name: str
    places: dict[str, str]
    threads: tuple[Thread, ...]
    allowed: frozenset[Outcome]
    source: str
    wrong: frozenset[Outcome] = frozenset()


_SIZE: Final = 8
_MAX_STATES: Final = 1 << 20


class _State:
    """How far a test has come: agents, memory, the next step of each thread, and registers."""

    def __init__(self, test: LitmusTest) -> None:
        self.test = test
        targets = [
            MemoryTarget(name, owner, index * 4096, _SIZE)
            for index, (name, owner) in enumerate(test.places.items())
        ]
        self.address = {target.name: target.base for target in targets}
        self.memory = SharedMemory(targets)
        self.agents = [Agent(one.name, one.order, one.owner) for one in test.threads]
        self.next = [0] * len(test.threads)
        self.registers: dict[tuple[int, int], int] = {}

    def key(self) -> tuple[object, ...]:
        """Return what determines what can happen next."""
        memory = self.memory
        values = tuple(memory.visible(at, _SIZE) for at in self.address.values())
        views = tuple(
            (
                tuple((one.address, one.data) for one in agent.pending),
                tuple(
                    tuple(
                        memory.load(deepcopy(agent), at, _SIZE, when)
                        for when in memory.times(agent, at)
                    )
                    for at in self.address.values()
                ),
            )
            for agent in self.agents
        )
        return tuple(self.next), tuple(sorted(self.registers.items())), values, views

    def moves(self) -> Iterator[tuple[int, int]]:
        """Yield what can happen next: a thread with a choice, or -1 and a pending store of it."""
        for index, agent in enumerate(self.agents):
            yield from ((index, -1 - number) for number in range(len(agent.ready())))
            steps = self.test.threads[index].steps
            if self.next[index] < len(steps):
                count = self._choices(index, steps[self.next[index]])
                yield from ((index, choice) for choice in range(count))

    def _choices(self, index: int, step: Step) -> int:
        """Return in how many ways a step can happen now; 0 if it must wait."""
        agent = self.agents[index]
        if isinstance(step, Fence):
            return int(not agent.waits_for(step.scope))
        if isinstance(step, Wait):
            now = self.memory.load(deepcopy(agent), self.address[step.place], _SIZE)
            return int(int.from_bytes(now, "little") == step.value)
        if isinstance(step, Load) and not step.strong:
            return len(self.memory.times(agent, self.address[step.place]))
        return 1

    def move(self, index: int, choice: int) -> None:
        """Let it happen."""
        agent = self.agents[index]
        if choice < 0:
            self.memory.show(agent, agent.ready()[-1 - choice])
            return
        step = self.test.threads[index].steps[self.next[index]]
        found = self._do(agent, step, choice)
        if found is not None:
            self.registers[index, self.next[index]] = found
        self.next[index] += 1

    def _do(self, agent: Agent, step: Step, choice: int) -> int | None:
        memory = self.memory
        if isinstance(step, Fence):
            memory.fence(agent, step.scope)
            return None
        if isinstance(step, Flush):
            device = next(one for one in self.agents if one.name == step.agent)
            memory.flush(device, step.owner)
            return None
        at = self.address[step.place]
        if isinstance(step, Store):
            memory.store(agent, at, step.value.to_bytes(_SIZE, "little"))
            return None
        if isinstance(step, Add):
            return memory.fetch_add(agent, at, step.value)
        weak = isinstance(step, Load) and not step.strong
        when = memory.times(agent, at)[choice] if weak else None
        value = int.from_bytes(memory.load(agent, at, _SIZE, when), "little")
        return None if isinstance(step, Wait) else value

    @property
    def is_done(self) -> bool:
        return all(
            count == len(thread.steps)
            for count, thread in zip(self.next, self.test.threads, strict=True)
        )

    def outcome(self) -> Outcome:
        return tuple(value for _, value in sorted(self.registers.items()))


def outcomes(test: LitmusTest) -> frozenset[Outcome]:
    """Return every outcome that the model allows, by trying all orders of all steps."""
    first = _State(test)
    known = {first.key()}
    waiting, found = [first], set()
    while waiting:
        state = waiting.pop()
        if state.is_done:
            found.add(state.outcome())
            continue
        for index, choice in state.moves():
            after = deepcopy(state)
            after.move(index, choice)
            if (key := after.key()) not in known:
                if len(known) >= _MAX_STATES:
                    raise ValueError(f"{test.name} has more than {_MAX_STATES} states")
                known.add(key)
                waiting.append(after)
    return frozenset(found)


def outcome(test: LitmusTest, seed: int) -> Outcome | None:
    """Return one outcome, whose order of steps is drawn; ``None`` if a thread waits for ever."""
    random = Random(seed)  # noqa: S311 - repeatable
    state = _State(test)
    while not state.is_done:
        moves = list(state.moves())
        if not moves:
            return None
        state.move(*random.choice(moves))
    return state.outcome()


def find(test: LitmusTest, wanted: frozenset[Outcome], seeds: Sequence[int]) -> int | None:
    """Return the first of these seeds whose outcome is one of ``wanted``."""
    return next((seed for seed in seeds if outcome(test, seed) in wanted), None)


# The tests.

_PTX: Final = "PTX ISA 8.5, chapter 8: morally strong operations and fences order weak ones"
_PCIE: Final = "PCIe Base 6.0, table 2-41: a posted request does not pass another one"
_RELAXED: Final = "PCIe Base 6.0, table 2-41, A2b: with relaxed ordering it may"
_FLUSH: Final = "GPUDirect RDMA guide, 2.5: no order between GPU memory and other targets"
_GPU: Final = "GPU0"
_HOST: Final = "host"
_FENCE: Final = (Fence(),)
_ONE: Final = frozenset({(1,)})
_ANY: Final = frozenset({(0,), (1,)})
_OLD: Final = frozenset({(0,)})


def _warp(name: str, *steps: Step, gpu: str = _GPU) -> Thread:
    return Thread(name, Order.WEAK, gpu, steps)


def _message(
    name: str, before: tuple[Step, ...], behind: tuple[Step, ...], allowed: frozenset[Outcome]
) -> LitmusTest:
    """A warp stores data and a flag; another waits for the flag and loads the data."""
    writer = _warp("writer", Store("data", 1), *before, Store("flag", 1))
    reader = _warp("reader", Wait("flag", 1), *behind, Load("data"))
    places = {"data": _GPU, "flag": _GPU}
    return LitmusTest(name, places, (writer, reader), allowed, _PTX, allowed & _OLD)


def _buffering(name: str, between: tuple[Step, ...], allowed: frozenset[Outcome]) -> LitmusTest:
    """Two warps store one number each, and load that of the other."""
    one = _warp("one", Store("x", 1), *between, Load("y"))
    other = _warp("other", Store("y", 1), *between, Load("x"))
    wrong = allowed & frozenset({(0, 0)})
    return LitmusTest(name, {"x": _GPU, "y": _GPU}, (one, other), allowed, _PTX, wrong)


def _doorbell(
    name: str, between: tuple[Step, ...], allowed: frozenset[Outcome], queue: str = _GPU
) -> LitmusTest:
    """A warp stores a WQE and rings the doorbell; the adapter then fetches the WQE."""
    warp = _warp("warp", Store("WQE", 1), *between, Store("doorbell", 1))
    adapter = Thread("adapter", Order.POSTED, "adapter", (Wait("doorbell", 1), Load("WQE")))
    places = {"WQE": queue, "doorbell": "adapter"}
    return LitmusTest(name, places, (warp, adapter), allowed, _PTX, allowed & _OLD)


def _completion(  # noqa: PLR0917
    name: str,
    order: Order,
    queue: str,
    behind: tuple[Step, ...],
    allowed: frozenset[Outcome],
    source: str,
) -> LitmusTest:
    """An adapter writes data and a CQE; a warp waits for the CQE and loads the data."""
    adapter = Thread("adapter", order, "adapter", (Store("data", 1), Store("CQE", 1)))
    warp = _warp("warp", Wait("CQE", 1), *behind, Load("data"))
    places = {"data": _GPU, "CQE": queue}
    return LitmusTest(name, places, (adapter, warp), allowed, source, allowed & _OLD)


_ALL_PAIRS: Final = frozenset({(0, 0), (0, 1), (1, 0), (1, 1)})

TESTS: Final = (
    _message("message passing", (), (), _ANY),
    _message("message passing, fence of the writer", _FENCE, (), _ANY),
    _message("message passing, fence of the reader", (), _FENCE, _ANY),
    _message("message passing, both fences", _FENCE, _FENCE, _ONE),
    _message("message passing, fences of the block", (Fence(Scope.BLOCK),), _FENCE, _ANY),
    _message("message passing, fences of the GPU", (Fence(Scope.GPU),), (Fence(Scope.GPU),), _ONE),
    _buffering("store buffering", (), _ALL_PAIRS),
    _buffering("store buffering, fences", _FENCE, _ALL_PAIRS - {(0, 0)}),
    LitmusTest(
        "load buffering",
        {"x": _GPU, "y": _GPU},
        (
            _warp("one", Load("x"), Store("y", 1)),
            _warp("other", Load("y"), Store("x", 1)),
        ),
        _ALL_PAIRS - {(1, 1)},
        "here a store never precedes an earlier load; PTX allows (1, 1) too",
    ),
    LitmusTest(
        "coherence of two loads",
        {"x": _GPU},
        (_warp("writer", Store("x", 1)), _warp("reader", Load("x"), Load("x"))),
        _ALL_PAIRS - {(1, 0)},
        "PTX ISA 8.5, 8.10.6: coherence",
    ),
    LitmusTest(
        "atomics",
        {"x": _GPU},
        (_warp("one", Add("x", 1)), _warp("other", Add("x", 1))),
        frozenset({(0, 1), (1, 0)}),
        "PTX ISA 8.5, 8.10.3: atomicity",
    ),
    _doorbell("doorbell", (), _ANY),
    _doorbell("doorbell, fence of the GPU", (Fence(Scope.GPU),), _ONE),
    _doorbell("doorbell, fence of the GPU, queue of the host", (Fence(Scope.GPU),), _ANY, _HOST),
    _doorbell("doorbell, fence of the system, queue of the host", _FENCE, _ONE, _HOST),
    _completion("data and CQE in GPU memory", Order.POSTED, _GPU, _FENCE, _ONE, _PCIE),
    _completion("data and CQE in GPU memory, no fence", Order.POSTED, _GPU, (), _ANY, _PTX),
    _completion("data and CQE, relaxed ordering", Order.RELAXED, _GPU, _FENCE, _ANY, _RELAXED),
    _completion("CQE of the host", Order.POSTED, _HOST, _FENCE, _ANY, _FLUSH),
    _completion(
        "CQE of the host, flush",
        Order.POSTED,
        _HOST,
        (Flush("adapter", _GPU), Fence()),
        _ONE,
        _FLUSH,
    ),
    LitmusTest(
        "proxy of the host, flush",
        {"data": _GPU, "CQE": _HOST, "flag": _GPU},
        (
            Thread("adapter", Order.POSTED, "adapter", (Store("data", 1), Store("CQE", 1))),
            Thread(
                "proxy",
                Order.TOTAL,
                _HOST,
                (Wait("CQE", 1), Flush("adapter", _GPU), Store("flag", 1)),
            ),
            _warp("warp", Wait("flag", 1), Fence(), Load("data")),
        ),
        _ONE,
        _FLUSH,
    ),
    LitmusTest(
        "stores of a processor",
        {"data": _HOST, "flag": _HOST},
        (
            Thread("processor", Order.TOTAL, _HOST, (Store("data", 1), Store("flag", 1))),
            _warp("warp", Wait("flag", 1), Fence(), Load("data")),
        ),
        _ONE,
        "Intel SDM, volume 3, 9.2: stores are not reordered with other stores",
    ),
    LitmusTest(
        "message passing to another GPU",
        {"data": "GPU1", "flag": "GPU1"},
        (
            _warp("writer", Store("data", 1), Fence(Scope.GPU), Store("flag", 1)),
            _warp("reader", Wait("flag", 1), Fence(), Load("data"), gpu="GPU1"),
        ),
        _ANY,
        "PTX ISA 8.5, 8.5: a scope that does not include both threads orders nothing",
        _OLD,
    ),
)
"""Litmus tests, with the outcomes that the model allows and where these rules are from."""
