"""gdrcopy: a processor's view of BAR1."""

from errno import EACCES, EINVAL, ENODEV

import pytest

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.gpu.device import MIB
from rdmawire.memory.gpu.gdrcopy import Gdr
from rdmawire.memory.page import PAGE_64K
from tests.memory.gpu.node import POSTING, Node


@pytest.mark.parametrize("offset", [0, 1, 512, PAGE_64K - 1])
@pytest.mark.parametrize("size", [1, PAGE_64K - 1, PAGE_64K, PAGE_64K + 1])
def test_pins_are_rounded_and_maps_are_aligned(offset: int, size: int) -> None:
    node = Node()
    gdr, memory = Gdr(node.driver), node.gpu.allocate(2 * MIB)
    buffer = gdr.pin_buffer(memory.address + offset, size)
    assert buffer.table.address == memory.address
    assert buffer.table.length == -(-(offset + size) // PAGE_64K) * PAGE_64K
    if offset:
        with pytest.raises(VerbsError, match="aligned") as caught:
            gdr.map(buffer, size)
        assert caught.value.errno == EINVAL
    else:
        gdr.map(buffer, size).write(size - 1, b"x")
        assert node.gpu.read(memory.address + size - 1, 2) == b"x\0"
    gdr.unpin_buffer(buffer)
    assert node.gpu.aperture.free == 15 * MIB


def test_maps_refused() -> None:
    node = Node()
    gdr, stranger = Gdr(node.driver), Gdr(node.driver)
    memory = node.gpu.allocate(2 * MIB)
    buffer = gdr.pin_buffer(memory.address, PAGE_64K)
    for size, offset in ((0, 0), (-1, 0), (PAGE_64K + 1, 0), (8, 4096)):
        with pytest.raises(VerbsError) as caught:
            gdr.map(buffer, size, offset)
        assert caught.value.errno == EINVAL
    for attempt in (lambda: stranger.map(buffer, 8), lambda: stranger.unpin_buffer(buffer)):
        with pytest.raises(VerbsError) as caught:
            attempt()
        assert caught.value.errno == EACCES
    gdr.map(buffer, 8)
    with pytest.raises(VerbsError, match="already"):
        gdr.map(buffer, 8)
    buffer.unmap()
    gdr.map(buffer, 8)


def test_a_freed_buffer() -> None:
    node = Node()
    gdr, memory = Gdr(node.driver), node.gpu.allocate(2 * MIB)
    buffer = gdr.pin_buffer(memory.address, PAGE_64K)
    mapping = gdr.map(buffer, 100)
    node.gpu.free(memory.address)
    for access in (lambda: mapping.read(0, 1), lambda: mapping.write(0, b"x")):
        with pytest.raises(MemoryFault, match="gone"):
            access()
    with pytest.raises(VerbsError, match="gone") as caught:
        gdr.map(buffer, 100)
    assert caught.value.errno == EINVAL
    gdr.unpin_buffer(buffer)
    with pytest.raises(VerbsError) as caught:
        gdr.pin_buffer(0, 8)
    assert caught.value.errno == ENODEV


def test_accesses_stay_inside_and_reads_flush() -> None:
    node = Node(POSTING)
    gdr, memory = Gdr(node.driver), node.gpu.allocate(2 * MIB)
    mapping = gdr.map(gdr.pin_buffer(memory.address, 2 * PAGE_64K), PAGE_64K + 10)
    mapping.write(PAGE_64K - 2, b"abcd")
    assert node.gpu.read(memory.address + PAGE_64K - 2, 4) == bytes(4)
    assert mapping.read(PAGE_64K - 2, 4) == b"abcd"
    assert node.gpu.read(memory.address + PAGE_64K - 2, 4) == b"abcd"
    for offset, length in ((-1, 1), (PAGE_64K + 9, 2)):
        with pytest.raises(MemoryFault, match="outside"):
            mapping.read(offset, length)
        with pytest.raises(MemoryFault, match="outside"):
            mapping.write(offset, bytes(length))
