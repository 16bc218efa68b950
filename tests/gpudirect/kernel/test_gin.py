"""NCCL's GIN: memory, signals and counters equal a plain model, by both backends, with losses."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import KernelError
from rdmawire.fabric import Rule
from rdmawire.gpudirect.kernel import (
    GFD_SIZE,
    GIN_FORGETTABLE,
    Backend,
    CounterInc,
    DevComm,
    ForgottenStep,
    Gfd,
    GfdOp,
    Gin,
    GinAllToAll,
    GinJob,
    GinPut,
    GinSpec,
    Kernel,
    PutSignal,
    SignalAdd,
    SignalInc,
)
from tests.effort import examples

SLOT = 64
BACKENDS = pytest.mark.parametrize("backend", Backend)
specs = st.builds(
    GinSpec,
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from(Backend),
    st.integers(1, 2),
    st.just(16),
    st.just(16),
    st.sampled_from(["A100", "H200"]),
    st.integers(0, 1000),
    st.sampled_from([0, 500, 3000]),
    st.just(frozenset()),
).filter(lambda spec: spec.ranks > 1)


class Step(NamedTuple):
    """An operation of a rank on another one, by its number modulo the ranks."""

    kind: str
    peer: int
    context: int
    data: bytes


steps = st.builds(
    Step,
    st.sampled_from(["put", "value", "inc", "add", "counter", "signal"]),
    st.integers(0, 3),
    st.integers(0, 1),
    st.binary(max_size=SLOT),
)
Phases = list[list[list[Step]]]
phases = st.lists(st.lists(st.lists(steps, max_size=4), min_size=4, max_size=4), max_size=3)


class Model:
    """What the memory of each rank must be: a slot for each writer and context, and numbers."""

    def __init__(self, job: GinJob) -> None:
        self.spec = job.spec
        self.target = job.register(SLOT * self.slots)
        self.source = job.register(SLOT)
        self.bytes = [[bytes(SLOT)] * self.slots for _ in range(job.spec.ranks)]
        self.signals: Counter[tuple[int, int]] = Counter()
        self.counters: Counter[tuple[int, int]] = Counter()

    @property
    def slots(self) -> int:
        return self.spec.ranks * self.spec.contexts

    def place(self, rank: int, step: Step) -> tuple[int, int, int]:
        """Return the peer, the context and the slot of a step.

        The peer is another rank: a barrier does not wait for what a rank sends to itself.
        """
        context = step.context % self.spec.contexts
        peer = (rank + 1 + step.peer % (self.spec.ranks - 1)) % self.spec.ranks
        return peer, context, rank * self.spec.contexts + context

    def apply(self, phase: list[list[Step]]) -> None:
        """Do the steps of a phase, in any order of ranks: each writer has slots of its own."""
        for rank in range(self.spec.ranks):
            for step in phase[rank]:
                self.do(rank, step)

    def do(self, rank: int, step: Step) -> None:
        peer, context, slot = self.place(rank, step)
        data = len(step.data).to_bytes(2, "little") if step.kind == "value" else step.data
        if step.kind != "signal":
            self.bytes[peer][slot] = data + self.bytes[peer][slot][len(data) :]
        added = {"inc": 1, "add": len(data), "signal": len(data)}.get(step.kind, 0)
        self.signals[peer, context] += added
        self.counters[rank, context] += step.kind == "counter"


def do(comm: DevComm, gins: list[Gin], model: Model, step: Step) -> Kernel:
    """Do one step."""
    peer, context, slot = model.place(comm.rank, step)
    gin, team, size = gins[context], comm.team_world(), len(step.data)
    actions: dict[str, SignalInc | SignalAdd] = {"inc": SignalInc(3), "add": SignalAdd(3, size)}
    counter = CounterInc(2) if step.kind == "counter" else None
    if step.kind == "value":
        yield from gin.put_value(team, peer, model.target, slot * SLOT, size, 2)
    elif step.kind == "signal":
        yield from gin.signal(team, peer, SignalAdd(3, size))
    else:
        comm.store(model.source, 0, step.data)
        yield from gin.put(
            team, peer, model.target, slot * SLOT, model.source, 0, size,
            actions.get(step.kind), counter,
        )  # fmt: skip
        yield from gin.flush()


def check(comm: DevComm, gins: list[Gin], model: Model) -> Kernel:
    """Compare the memory of a rank with the model."""
    for context, gin in enumerate(gins):
        yield from gin.wait_counter(2, model.counters[comm.rank, context])
        assert (yield from gin.read_counter(2)) == model.counters[comm.rank, context]
        assert (yield from gin.read_signal(3)) == model.signals[comm.rank, context]
    loaded = comm.load(model.target, 0, SLOT * model.slots)
    assert loaded == b"".join(model.bytes[comm.rank])


def barrier(comm: DevComm, gins: list[Gin]) -> Kernel:
    """Wait for all ranks, behind the puts of all contexts."""
    for gin in gins:
        yield from gin.barrier(comm.team_world())


@settings(max_examples=examples(10))
@given(specs, phases, st.sampled_from([0.0, 0.05]))
def test_memory_equals_the_model_after_each_barrier(
    spec: GinSpec, drawn: Phases, loss: float
) -> None:
    job = GinJob(spec)
    for link in job.network.links:
        job.network.set_faults(link, Rule("drop", chance=loss))
    model = Model(job)
    applied = [0]

    def kernel(comm: DevComm) -> Kernel:
        gins = [comm.gin(context) for context in range(spec.contexts)]
        for number, phase in enumerate(drawn):
            for step in phase[comm.rank]:
                yield from do(comm, gins, model, step)
            yield from barrier(comm, gins)
            if applied[0] == number:
                model.apply(phase)
                applied[0] += 1
            yield from check(comm, gins, model)
            yield from barrier(comm, gins)

    for rank in range(spec.ranks):
        job.launch(rank, kernel)
    job.run()
    assert applied[0] == len(drawn)


@settings(max_examples=examples(5))
@given(specs, st.sampled_from(PutSignal), st.integers(1, 9000), st.integers(1, 6))
def test_puts_and_blocks_are_right(spec: GinSpec, signal: PutSignal, size: int, puts: int) -> None:
    report = GinPut(spec, size, puts, signal).run()
    assert report.is_right, (report.wrong, report.stuck)
    run = GinAllToAll(spec, size)
    assert run.run().is_right
    ranks = range(spec.ranks)
    assert run.received == {
        rank: b"".join(run.sent[peer][rank] for peer in ranks) for rank in ranks
    }


@pytest.mark.parametrize(
    ("backend", "step"),
    [(backend, step) for backend in Backend for step in GIN_FORGETTABLE[backend]],
)
def test_a_forgotten_step_is_found_by_a_seed(backend: Backend, step: ForgottenStep) -> None:
    spec = GinSpec(backend=backend, forgotten=frozenset({step}))
    reports = (GinPut(spec._replace(seed=seed)).run() for seed in range(100))
    found = next((report for report in reports if not report.is_right), None)
    assert found is not None
    assert GinPut(found.spec).run() == found
    assert GinPut(found.spec._replace(forgotten=frozenset())).run().is_right
    assert step.meaning


def test_wrong_blocks_are_named() -> None:
    spec = GinSpec(3, forgotten=frozenset({ForgottenStep.READER_FENCE}))
    wrong = [
        name for seed in range(5) for name in GinAllToAll(spec._replace(seed=seed)).run().wrong
    ]
    assert wrong
    assert all(name.startswith("block of rank ") for name in wrong)


def test_too_many_losses_are_reported() -> None:
    report = GinPut(GinSpec(), loss=1.0).run()
    assert not report.is_right
    assert "rank" in report.stuck


# On the wire.


def fields(path: Path, *names: str) -> list[tuple[str, ...]]:
    """Return fields of all frames as tshark reads them; none may be malformed."""
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=,"]
    for name in ("_ws.malformed", "ip.src", "infiniband.bth.opcode", *names):
        command += ["-e", name]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    rows = [tuple(line.split(",")) for line in done.stdout.splitlines()]
    assert all(not row[0] for row in rows)
    return [row[1:] for row in rows]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
@BACKENDS
def test_a_put_is_a_write_and_a_signal_a_fetch_add_behind_it(
    tmp_path: Path, backend: Backend
) -> None:
    path = tmp_path / "puts.pcap"
    run = GinPut(GinSpec(backend=backend), size=100, puts=3, signal=PutSignal.ADD)
    with run.network.captured(path):
        report = run.run()
    rows = fields(
        path, "infiniband.bth.psn", "infiniband.reth.va", "infiniband.reth.dmalen",
        "infiniband.atomiceth.swapdt",
    )  # fmt: skip
    assert len(rows) == report.frames
    mine = [row[1:] for row in rows if row[0] == rows[0][0] and int(row[1]) in (10, 20)]
    assert [int(row[0]) for row in mine] == [10, 20] * 3  # RC WRITE Only, FetchAdd
    psns = [int(row[1]) for row in mine]
    assert psns == list(range(psns[0], psns[0] + 6))
    writes, adds = mine[::2], mine[1::2]
    addresses = [int(row[2], 0) for row in writes]
    base = addresses[0]
    assert [address - base for address in addresses] == [0, 100, 200]
    assert (base == 0) is (backend is Backend.GDAKI)
    assert [row[3] for row in writes] == ["100"] * 3
    assert [int(row[4]) for row in adds] == [1, 2, 3]


@BACKENDS
def test_puts_to_the_own_rank_and_counters_are_not_on_the_wire(backend: Backend) -> None:
    job = GinJob(GinSpec(backend=backend))
    source, target = job.register(8), job.register(8)

    def kernel(comm: DevComm) -> Kernel:
        comm.store(source, 0, b"weights!")
        gin = comm.gin()
        yield from gin.put(
            comm.team_world(), 0, target, 0, source, 0, 8, SignalInc(0), CounterInc(0)
        )
        yield from gin.wait_signal(0, 1)
        assert comm.load(target, 0, 8) == b"weights!"
        yield from gin.wait_counter(0, 1)

    job.launch(0, kernel)
    job.run()
    assert job.read(0, target, 0, 8) == b"weights!"
    assert job.frames == 0


# Signals, counters and teams.


@BACKENDS
def test_signals_roll_over_and_are_reset(backend: Backend) -> None:
    job = GinJob(GinSpec(backend=backend))
    seen: list[int] = []

    def sender(comm: DevComm) -> Kernel:
        gin = comm.gin()
        yield from gin.signal(comm.team_world(), 1, SignalAdd(0, (1 << 64) - 2))
        yield from gin.signal(comm.team_world(), 1, SignalAdd(0, 0x105))

    def receiver(comm: DevComm) -> Kernel:
        gin = comm.gin()
        yield from gin.wait_signal(0, (1 << 64) - 2)
        yield from gin.wait_signal(0, 0x103)
        seen.append((yield from gin.read_signal(0)))
        seen.append((yield from gin.read_signal(0, bits=8)))
        yield from gin.reset_signal(0)
        yield from gin.reset_counter(0)
        seen.append((yield from gin.read_signal(0)))

    job.launch(0, sender)
    job.launch(1, receiver)
    job.run()
    assert seen == [0x103, 3, 0]


def test_ranks_of_teams() -> None:
    job = GinJob(GinSpec(hosts=3, gpus=2))
    teams: dict[int, list[list[int]]] = {}

    def kernel(comm: DevComm) -> Kernel:
        teams[comm.rank] = [
            [comm.world_rank(team, rank) for rank in range(team.n_ranks)]
            for team in (comm.team_world(), comm.team_rail(), comm.team_lsa())
        ]
        yield from comm.gin().barrier(comm.team_rail())

    for rank in range(6):
        job.launch(rank, kernel)
    job.run()
    for rank in range(6):
        near = rank - rank % 2
        assert teams[rank] == [list(range(6)), list(range(rank % 2, 6, 2)), [near, near + 1]]


def test_a_queue_of_descriptors_is_used_again() -> None:
    job = GinJob(GinSpec(backend=Backend.PROXY, max_delay=0))
    target = job.register(8 * 40)

    def kernel(comm: DevComm) -> Kernel:
        for number in range(40):
            yield from comm.gin().put_value(comm.team_world(), 1, target, 8 * number, number)
        yield from comm.gin().flush()

    job.launch(0, kernel)
    job.run()
    numbers = [int.from_bytes(job.read(1, target, 8 * n, 8), "little") for n in range(40)]
    assert numbers == list(range(40))


# Descriptors.


@given(
    st.integers(0, 31), st.integers(0, (1 << 57) - 1), st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 64) - 1),
)  # fmt: skip
def test_descriptors_are_read_as_built(
    op: int, size: int, place: int, number: int, value: int
) -> None:
    has_value = op & GfdOp.WITH_INLINE
    source = (0, 0) if has_value else (place, place >> 1)
    gfd = Gfd(
        GfdOp(op), size, *source, place >> 2, place >> 3, number, number ^ 1, value,
        value if has_value else 0,
    )  # fmt: skip
    data = gfd.build()
    assert len(data) == GFD_SIZE
    assert all(data[at] & 1 for at in range(0, GFD_SIZE, 8))
    assert Gfd.parse(data) == gfd


def test_a_descriptor_word_by_word() -> None:
    op = GfdOp.PUT | GfdOp.WITH_COUNTER | GfdOp.WITH_SIGNAL_ADD
    data = Gfd(op, 0x1000, 0x10, 2, 0x20, 3, 4, 5, 0x1122334455667788).build()
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, GFD_SIZE, 8)]
    assert words == [
        0x1000 << 7 | 0b010101 << 1 | 1,
        0x10 << 1 | 1,
        2 << 1 | 1,
        0x20 << 1 | 1,
        3 << 1 | 1,
        0x7788 << 40 | 5 << 24 | 4 << 8 | 1,
        0x11223344 << 24 | 0x5566 << 8 | 1,
        1,
    ]


# What cannot be.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hosts": 0}, "0 ranks; 1 to 32"),
        ({"hosts": 32, "gpus": 2}, "64 ranks"),
        ({"contexts": 5}, "5 contexts; 1 to 4"),
        ({"signals": 0}, "0 signals"),
        ({"counters": 5000}, "5000 counters"),
        ({"model": "GT 710"}, "GT 710 is no GPU that is known"),
        (
            {"forgotten": frozenset({ForgottenStep.DATA_FENCE})},
            "the gdaki backend has no data-fence",
        ),
    ],
)
def test_jobs_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        GinJob(GinSpec()._replace(**change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GinJob().register(0), "a window of 0 bytes"),
        (lambda: GinPut(GinSpec(), puts=0), "0 puts"),
        (lambda: GinPut(GinSpec(), 1 << 20, 1000), "1000 puts of 1048576 bytes"),
        (lambda: GinAllToAll(GinSpec(), 0), "blocks of 0 bytes"),
    ],
)
def test_programs_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        make()


CALLS: dict[str, Callable[[GinJob, DevComm, Gin], Kernel]] = {
    "9 bytes at 0 are not in a window of 8": lambda job, comm, gin: gin.put(
        comm.team_world(), 1, job.windows[-1], 0, job.windows[-1], 0, 9
    ),
    "2 bytes at 7 are not": lambda job, comm, gin: gin.put_value(
        comm.team_world(), 1, job.windows[-1], 7, 1, 2
    ),
    "256 is no number of 1 bytes": lambda job, comm, gin: gin.put_value(
        comm.team_world(), 1, job.windows[-1], 0, 256, 1
    ),
    "rank 2 of a team of 2": lambda _job, comm, gin: gin.signal(comm.team_world(), 2, SignalInc(0)),
    "signal 16; there are 16": lambda _job, _comm, gin: gin.wait_signal(16, 0),
    "counter 16; there are 16": lambda _job, _comm, gin: gin.wait_counter(16, 0),
    "context 1; there are 1": lambda _job, comm, _gin: comm.gin(1).flush(),
    "65 bits": lambda _job, _comm, gin: gin.wait_signal(0, 0, 65),
    "cannot be added": lambda _job, comm, gin: gin.signal(
        comm.team_world(), 1, SignalAdd(0, 1 << 64)
    ),
    "has waited for": lambda _job, _comm, gin: gin.wait_signal(0, 1),
}


@pytest.mark.parametrize("message", CALLS)
def test_calls_that_cannot_be(message: str) -> None:
    job = GinJob(GinSpec())
    job.register(8)
    job.launch(0, lambda comm: CALLS[message](job, comm, comm.gin()))
    with pytest.raises(KernelError, match=message):
        job.run()


@BACKENDS
def test_a_context_belongs_to_one_warp(backend: Backend) -> None:
    job = GinJob(GinSpec(backend=backend))

    def kernel(comm: DevComm) -> Kernel:
        yield from comm.gin().signal(comm.team_world(), 1, SignalInc(0))

    job.launch(0, kernel, "one")
    job.launch(0, kernel, "other")
    with pytest.raises(KernelError, match="context 0 of rank 0 has two posting warps"):
        job.run()
