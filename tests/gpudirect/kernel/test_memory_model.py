"""Shared memory: what readers may see, and that all stores become visible in an allowed order."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import MemoryFault
from rdmawire.gpudirect.kernel import Agent, MemoryTarget, Order, Scope, SharedMemory

GPU = MemoryTarget("memory of the GPU", "GPU0", 0, 64)
HOST = MemoryTarget("memory of the host", "host", 4096, 64)
Stores = list[tuple[int, int, bytes]]


@st.composite
def stores(draw: st.DrawFn) -> Stores:
    """Draw stores of two agents to the memory of the GPU or the host."""
    one = st.tuples(
        st.integers(0, 1),
        st.one_of(st.integers(0, 40), st.integers(4096, 4136)),
        st.binary(min_size=1, max_size=20),
    )
    return draw(st.lists(one, max_size=12))


@settings(max_examples=100)
@given(stores(), st.sampled_from(Order), st.integers(0, 1000))
def test_stores_become_visible_once_and_in_an_allowed_order(
    drawn: Stores, order: Order, seed: int
) -> None:
    random = Random(seed)
    memory = SharedMemory([GPU, HOST])
    agents = [Agent("one", order), Agent("other", order)]
    model, shown = bytearray(8192), 0
    for number, address, data in drawn:
        memory.store(agents[number], address, data)
    while ready := [(agent, one) for agent in agents for one in agent.ready()]:
        agent, one = random.choice(ready)
        earlier = [other for other in agent.pending if other.number < one.number]
        assert not any(other.overlaps(one.address, len(one.data)) for other in earlier)
        if order is Order.TOTAL:
            assert not earlier
        if order is Order.POSTED:
            assert not any(other.target is one.target for other in earlier)
        memory.show(agent, one)
        model[one.address : one.end] = one.data
        shown += 1
        assert memory.visible(0, 64) == model[:64]
        assert memory.visible(4096, 64) == model[4096:4160]
    assert shown == len(drawn) == memory.changes


@settings(max_examples=100)
@given(stores(), st.integers(0, 1000))
def test_a_weak_reader_sees_only_what_was_visible_since_its_fence(drawn: Stores, seed: int) -> None:
    random = Random(seed)
    memory = SharedMemory([GPU, HOST])
    writer, reader = Agent("writer", Order.TOTAL), Agent("reader", Order.WEAK)
    since, last = [bytes(8)], 0
    for _, address, data in drawn:
        memory.store(writer, address, data)
        memory.fence(writer)
        since.append(memory.visible(8, 8))
        if random.random() < 0.3:
            memory.fence(reader)
            since, last = [memory.visible(8, 8)], 0
        times = memory.times(reader, 8)
        values = [memory.load(Agent("copy", Order.WEAK), 8, 8, time) for time in times]
        assert values == since[last:]
        chosen = random.randrange(len(values))
        memory.load(reader, 8, 8, times[chosen])
        last += chosen


def test_own_stores_are_seen() -> None:
    memory = SharedMemory([GPU])
    agent, other = Agent("agent", Order.WEAK), Agent("other", Order.WEAK)
    memory.store(agent, 4, b"abcd")
    assert memory.load(agent, 2, 8) == b"\0\0abcd\0\0"
    assert memory.load(other, 2, 8) == bytes(8)


def test_a_fence_of_the_gpu_does_not_wait_for_others() -> None:
    memory = SharedMemory([GPU, HOST])
    agent = Agent("warp", Order.WEAK, "GPU0")
    memory.store(agent, 0, b"a")
    memory.store(agent, 4096, b"b")
    memory.fence(agent, Scope.BLOCK)
    assert len(agent.pending) == 2
    memory.fence(agent, Scope.GPU)
    assert [one.target for one in agent.pending] == [HOST]
    memory.fence(agent)
    assert not agent.pending


def test_atomics_are_at_once_and_after_own_stores() -> None:
    memory = SharedMemory([GPU])
    agent = Agent("warp", Order.WEAK)
    memory.store(agent, 0, (5).to_bytes(8, "little"))
    assert memory.fetch_add(agent, 0, 3) == 5
    assert memory.compare_swap(agent, 0, 8, 100) == 8
    assert memory.compare_swap(agent, 0, 8, 200) == 100
    assert memory.fetch_add(agent, 0, (1 << 64) - 100) == 100
    assert memory.visible(0, 8) == bytes(8)


def test_registers_are_rung_when_a_store_is_visible() -> None:
    rung: list[tuple[int, bytes]] = []
    bell = MemoryTarget("doorbells", "adapter", 8192, 64, lambda at, data: rung.append((at, data)))
    memory = SharedMemory([GPU, bell])
    agent = Agent("warp", Order.WEAK)
    memory.store(agent, 8200, b"ring")
    assert not rung
    memory.fence(agent)
    assert rung == [(8, b"ring")]


@pytest.mark.parametrize(("address", "length"), [(60, 8), (64, 1), (4095, 2), (1 << 40, 1)])
def test_what_is_in_no_target_is_refused(address: int, length: int) -> None:
    memory = SharedMemory([GPU, HOST])
    agent = Agent("warp", Order.WEAK)
    with pytest.raises(MemoryFault):
        memory.load(agent, address, length)
    with pytest.raises(MemoryFault):
        memory.store(agent, address, bytes(length))
