"""NVSHMEM: heaps equal a plain model after each barrier, by any transport and with losses."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import KernelError
from rdmawire.fabric import Rule
from rdmawire.gpudirect.kernel import (
    Comparison,
    Kernel,
    Nvshmem,
    NvshmemSpec,
    Shmem,
    SignalOp,
    Transport,
    ring_put,
)
from tests.effort import examples

SLOT = 64
specs = st.builds(
    NvshmemSpec,
    st.integers(1, 3),
    st.integers(1, 2),
    st.just(1 << 12),
    st.sampled_from(Transport),
    st.sampled_from(["A100", "H200"]),
    st.integers(0, 1000),
    st.sampled_from([0, 500, 3000]),
    st.integers(1, 2),
)


class Step(NamedTuple):
    """An operation of a PE on another one, by its number modulo the PEs."""

    kind: str
    target: int
    data: bytes


steps = st.builds(
    Step,
    st.sampled_from(["put", "put_nbi", "p", "put_signal", "add", "get"]),
    st.integers(0, 5),
    st.binary(min_size=1, max_size=SLOT),
)
Phases = list[list[list[Step]]]
phases = st.lists(st.lists(st.lists(steps, max_size=4), min_size=6, max_size=6), max_size=3)


class Model:
    """What the heap of each PE must be: a slot for each writer, signals, and a counter."""

    def __init__(self, job: Nvshmem) -> None:
        self.pes = job.spec.pes
        self.slots = job.malloc(SLOT * self.pes)
        self.signals = job.malloc(8 * self.pes)
        self.counter = job.malloc(8)
        self.source = job.malloc(SLOT)
        self.result = job.malloc(SLOT)
        self.bytes = [[bytes(SLOT)] * self.pes for _ in range(self.pes)]
        self.signal = [[0] * self.pes for _ in range(self.pes)]
        self.count = [0] * self.pes

    def apply(self, phase: list[list[Step]]) -> None:
        """Do the steps of a phase, in any order: each PE has slots of its own."""
        for pe in range(self.pes):
            for step in phase[pe]:
                self.do(pe, step.target % self.pes, step)

    def do(self, pe: int, target: int, step: Step) -> None:
        slot, data = self.bytes[target][pe], step.data
        if step.kind == "p":
            data = len(data).to_bytes(8, "little")
        if step.kind in ("put", "put_nbi", "p", "put_signal"):
            self.bytes[target][pe] = data + slot[len(data) :]
        if step.kind == "put_signal":
            self.signal[target][pe] += len(data)
        if step.kind == "add":
            self.count[target] += len(data)


def check(shmem: Shmem, model: Model) -> None:
    """Compare the own heap with the model."""
    me = shmem.my_pe
    for pe in range(model.pes):
        assert shmem.load(model.slots + pe * SLOT, SLOT) == model.bytes[me][pe]
        assert shmem.test(model.signals + 8 * pe, Comparison.EQ, model.signal[me][pe])
    assert shmem.test(model.counter, Comparison.EQ, model.count[me])


def do(shmem: Shmem, model: Model, step: Step) -> Kernel:
    """Do one step."""
    target, size = step.target % model.pes, len(step.data)
    slot = model.slots + shmem.my_pe * SLOT
    shmem.store(model.source, step.data)
    yield from shmem.warp.fence()
    if step.kind == "put":
        yield from shmem.put(slot, model.source, size, target)
    elif step.kind == "put_nbi":
        yield from shmem.put_nbi(slot, model.source, size, target)
        yield from shmem.quiet()
    elif step.kind == "p":
        yield from shmem.p(slot, size, target)
    elif step.kind == "put_signal":
        signal = model.signals + 8 * shmem.my_pe
        yield from shmem.put_signal(slot, model.source, size, signal, size, target, SignalOp.ADD)
    elif step.kind == "add":
        before = yield from shmem.atomic_fetch_add(model.counter, size, target)
        assert before >= 0
    else:
        yield from shmem.get(model.result, model.slots, SLOT, target)
        assert len(shmem.load(model.result, SLOT)) == SLOT


@settings(max_examples=examples(8))
@given(specs, phases, st.sampled_from([0.0, 0.05]))
def test_heaps_equal_the_model_after_each_barrier(
    spec: NvshmemSpec, drawn: Phases, loss: float
) -> None:
    job = Nvshmem(spec)
    for link in job.network.links:
        job.network.set_faults(link, Rule("drop", chance=loss))
    model = Model(job)
    applied = [0]

    def kernel(shmem: Shmem) -> Kernel:
        for number, phase in enumerate(drawn):
            for step in phase[shmem.my_pe]:
                yield from do(shmem, model, step)
            yield from shmem.barrier_all()
            if applied[0] == number:
                model.apply(phase)
                applied[0] += 1
            check(shmem, model)
            yield from shmem.barrier_all()

    for pe in range(spec.pes):
        job.launch(pe, kernel)
    job.run()
    assert applied[0] == len(drawn)


@pytest.mark.parametrize("transport", Transport)
def test_gets_return_what_was_put(transport: Transport) -> None:
    job = Nvshmem(NvshmemSpec(2, 2, transport=transport))
    data, result = job.malloc(100), job.malloc(100)

    def kernel(shmem: Shmem) -> Kernel:
        shmem.store(data, bytes([shmem.my_pe + 1]) * 100)
        yield from shmem.barrier_all()
        for pe in range(shmem.n_pes):
            yield from shmem.get(result, data, 100, pe)
            assert shmem.load(result, 100) == bytes([pe + 1]) * 100

    for pe in range(4):
        job.launch(pe, kernel)
    assert job.run() > 0


@pytest.mark.parametrize("transport", Transport)
def test_one_pe_wins_a_swap(transport: Transport) -> None:
    job = Nvshmem(NvshmemSpec(2, 2, transport=transport))
    lock = job.malloc(8)
    found: list[int] = []

    def kernel(shmem: Shmem) -> Kernel:
        found.append((yield from shmem.atomic_compare_swap(lock, 0, shmem.my_pe + 1, 0)))

    for pe in range(4):
        job.launch(pe, kernel)
    job.run()
    winner = int.from_bytes(job.read(0, lock, 8), "little")
    assert sorted(found) == [0, *[winner] * 3]


def test_the_host_puts_too() -> None:
    job = Nvshmem(NvshmemSpec(2, 1))
    source, data, signal = job.malloc(10), job.malloc(10), job.malloc(8)

    def host(shmem: Shmem) -> Kernel:
        shmem.store(source, b"from host!")
        yield from shmem.put_signal(data, source, 10, signal, 1, 1)

    def kernel(shmem: Shmem) -> Kernel:
        yield from shmem.signal_wait_until(signal, Comparison.EQ, 1)
        assert shmem.load(data, 10) == b"from host!"

    job.launch_host(0, host)
    job.launch(1, kernel)
    job.run()
    assert job.read(1, data, 10) == b"from host!"


def test_the_ring_reports_wrong_data() -> None:
    job = Nvshmem(NvshmemSpec(2, 1))
    kernel = ring_put(job, 64)

    def other(shmem: Shmem) -> Kernel:
        yield from shmem.signal_op(job.malloc(8) - 8, 1, 0)

    job.launch(0, kernel)
    job.launch(1, other)
    with pytest.raises(KernelError, match="wrong data"):
        job.run()


def test_a_wait_without_end_names_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdmawire.gpudirect.kernel.nvshmem._TIMEOUT", 200_000)
    job = Nvshmem(NvshmemSpec(2, 1))
    signal = job.malloc(8)
    job.launch(0, lambda shmem: shmem.signal_wait_until(signal, Comparison.GE, 1))
    with pytest.raises(KernelError, match=r"pe0\.warp has waited for 200000 ns"):
        job.run()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (NvshmemSpec(0, 1), "0 PEs"),
        (NvshmemSpec(65, 1), "65 PEs"),
        (NvshmemSpec(heap=0), "a heap of 0 bytes"),
    ],
)
def test_jobs_that_cannot_be(spec: NvshmemSpec, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        Nvshmem(spec)


def test_what_is_outside_of_the_heap_is_refused() -> None:
    job = Nvshmem(NvshmemSpec(2, 1, heap=128))
    with pytest.raises(KernelError, match="129 bytes of the symmetric heap; 128 are left"):
        job.malloc(129)
    for call in (
        lambda shmem: shmem.put(10_000, 0, 8, 1),
        lambda shmem: shmem.put(0, 0, 8, 2),
        lambda shmem: shmem.get(0, -8, 8, 1),
    ):
        one = Nvshmem(NvshmemSpec(2, 1, heap=128))
        one.launch(0, call)
        with pytest.raises(KernelError):
            one.run()


def test_a_signal_follows_the_data_on_its_queue_pair() -> None:
    job = Nvshmem(NvshmemSpec(rc_per_pe=3))
    source, data, signal = job.malloc(8), job.malloc(8 * 3), job.malloc(8 * 3)

    def sender(shmem: Shmem) -> Kernel:
        shmem.store(source, b"weights!")
        yield from shmem.fence()
        for qp in range(3):
            yield from shmem.put_nbi(data + 8 * qp, source, 8, 1, qp)
            yield from shmem.signal_op(signal + 8 * qp, qp + 1, 1, SignalOp.ADD, qp)

    def receiver(shmem: Shmem) -> Kernel:
        for qp in range(3):
            yield from shmem.signal_wait_until(signal + 8 * qp, Comparison.EQ, qp + 1)
            assert shmem.load(data + 8 * qp) == b"weights!"

    job.launch(0, sender)
    job.launch(1, receiver)
    job.run()
    numbers = {job.queue(0, 1, qp, on_gpu=True).qp.qp_num for qp in range(3)}
    assert len(numbers) == 3


def test_the_number_of_queue_pairs_is_bounded() -> None:
    with pytest.raises(KernelError, match="33 queue pairs to a PE; 1 to 32"):
        Nvshmem(NvshmemSpec(rc_per_pe=33))
