"""dma-bufs: export, regions of them, revocation, moves, and what applications probe."""

from errno import EBADF, EINVAL, ENODEV, ENOMEM, EOPNOTSUPP, ETIMEDOUT

import pytest

from rdmawire.errors import ENOTSUPP, MemoryFault, VerbsError
from rdmawire.memory.dmabuf import DmaBufRange, reg_dmabuf_mr
from rdmawire.memory.gpu.device import MIB, AllocationType
from rdmawire.memory.gpu.driver import GpuDmaBuf, export_dmabuf
from rdmawire.memory.key import LOCAL_WRITE, Access, KeyFault
from rdmawire.memory.page import PAGE_4K, PAGE_64K, Path
from rdmawire.memory.region import Region
from tests.memory.gpu.node import POSTING, SMALL, Node

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
SIZE = 4 * PAGE_64K


class Shared(Node):
    """A node that shares four GPU pages."""

    def __init__(self, profile: object = SMALL, skew: int = 0) -> None:
        super().__init__(profile)  # type: ignore[arg-type]
        self.memory = self.gpu.allocate(2 * MIB)
        self.start = self.memory.address + skew
        self.buf: GpuDmaBuf = export_dmabuf(self.driver, self.start, SIZE)
        self.fd = self.files.open(self.buf)

    def register(
        self, offset: int = 0, length: int = SIZE, iova: int = 0, access: int = RIGHTS
    ) -> Region:
        wanted = DmaBufRange(offset, length, iova, self.fd)
        return reg_dmabuf_mr(self.registrar, self.files, self.pd, wanted, access)


@pytest.mark.parametrize("profile", [SMALL, POSTING])
@pytest.mark.parametrize("skew", [0, PAGE_4K, PAGE_64K - PAGE_4K])
def test_offsets_and_iovas(profile: object, skew: int) -> None:
    node = Shared(profile, skew)
    for offset in (0, 1, 100, PAGE_4K, PAGE_64K - 1, 2 * PAGE_64K + 3):
        iova = 0x5555_0000_0000 + offset % PAGE_4K
        region = node.register(offset, SIZE - offset, iova)
        for at in (0, 1, PAGE_64K - 2, max(0, -(skew + offset) % PAGE_64K - 2)):
            for data in (b"abcd", b"efgh"):
                region.write(iova + at, data)
                assert bytes(region.read(iova + at, 4)) == data
                assert node.gpu.read(node.start + offset + at, 4) == data
        region.write(region.end - 1, b"z")
        region.read(iova, 1)
        assert node.gpu.read(node.start + SIZE - 1, 2) == b"z\0"
        with pytest.raises(MemoryFault, match="outside"):
            region.write(region.end, b"z")
    assert node.registrar.counter[Path.GPU_DIRECT].copies == 0


@pytest.mark.parametrize("offset", [0, 1, PAGE_4K - 1, PAGE_4K, PAGE_4K + 5])
@pytest.mark.parametrize("iova", [0, 1, PAGE_4K - 1, PAGE_4K, PAGE_64K + 5])
def test_iova_and_offset_share_their_place_in_a_page(offset: int, iova: int) -> None:
    node = Shared()
    if offset % PAGE_4K == iova % PAGE_4K:
        assert node.register(offset, 10, iova).iova == iova
    else:
        with pytest.raises(VerbsError, match="within a page") as caught:
            node.register(offset, 10, iova)
        assert caught.value.errno == EINVAL


@pytest.mark.parametrize("bit", range(32))
def test_rights_of_dmabuf_regions(bit: int) -> None:
    access = 1 << bit
    allowed = {0: 1, 1: 1, 2: 0, 3: 1, 20: 0}
    node = Shared()
    if bit in allowed:
        assert node.register(access=access | allowed[bit]).access == access | allowed[bit]
    if bit not in allowed or bit in (1, 3):
        with pytest.raises(VerbsError) as caught:
            node.register(access=access)
        assert caught.value.errno == EINVAL


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, SIZE + 1), (SIZE, 1), (-PAGE_4K, 1), (0, 0), (0, -1), (PAGE_4K, SIZE)],
)
def test_ranges_stay_inside_the_buffer(offset: int, length: int) -> None:
    node = Shared()
    with pytest.raises(VerbsError) as caught:
        node.register(offset, length)
    assert caught.value.errno == EINVAL
    assert (len(node.keys), node.gpu.aperture.free) == (0, 15 * MIB)


def test_probes() -> None:
    """NCCL and UCX register nothing, of descriptor -1, and look at the errno."""
    node = Node()
    probe = DmaBufRange(0, 0, 0, -1)
    for files, errno in ((node.files, EBADF), (None, EOPNOTSUPP)):
        with pytest.raises(VerbsError) as caught:
            reg_dmabuf_mr(node.registrar, files, node.pd, probe, 0)
        assert caught.value.errno == errno


def test_processors_do_not_map_it() -> None:
    with pytest.raises(VerbsError, match="ENOTSUPP") as caught:
        Shared().buf.mmap()
    assert caught.value.errno == ENOTSUPP == 524


def test_a_revoked_buffer() -> None:
    node = Shared()
    region = node.register()
    region.write(0, b"x")
    node.buf.revoke()
    assert node.keys.check(region.key, node.pd, 0, 1, LOCAL_WRITE) is KeyFault.INVALIDATED
    with pytest.raises(MemoryFault, match="no pages"):
        region.read(0, 1)
    assert node.gpu.aperture.free == 15 * MIB
    with pytest.raises(VerbsError, match="revoked") as caught:
        node.register()
    assert caught.value.errno == EINVAL
    node.registrar.dereg_mr(region)


def test_a_fence_that_stays() -> None:
    node = Shared()
    node.buf.fenced = True
    with pytest.raises(VerbsError) as caught:
        node.register()
    assert caught.value.errno == ETIMEDOUT
    node.buf.fenced = False
    node.register()


def test_moved_pages_are_mapped_again_by_a_page_fault() -> None:
    node = Shared()
    region = node.register()
    region.write(PAGE_64K, b"kept")
    assert region.page_faults == 0
    node.buf.move()
    assert node.gpu.aperture.free == 15 * MIB
    assert bytes(region.read(PAGE_64K, 4)) == b"kept"
    region.write(PAGE_64K + 4, b"!")
    assert region.page_faults == 1
    assert node.gpu.read(node.start + PAGE_64K, 5) == b"kept!"
    node.buf.move()
    node.buf.fenced = True
    with pytest.raises(MemoryFault, match="fence"):
        region.read(0, 1)
    node.files.close(node.fd)
    node.registrar.dereg_mr(region)
    assert not node.gpu.holders


def test_a_dmabuf_keeps_freed_memory_alive() -> None:
    node = Shared()
    region = node.register()
    region.write(0, b"alive")
    node.gpu.free(node.memory.address)
    assert bytes(region.read(0, 5)) == b"alive"
    assert node.gpu.allocate(2 * MIB).address != node.memory.address
    node.files.close(node.fd)
    assert bytes(region.read(0, 5)) == b"alive"
    node.registrar.dereg_mr(region)
    assert (node.gpu.held, node.gpu.aperture.free) == (0, 15 * MIB)
    assert node.gpu.allocate(2 * MIB).address == node.memory.address


def test_closed_descriptors() -> None:
    node = Shared()
    node.files.close(node.fd)
    for attempt in (lambda: node.files.close(node.fd), node.register):
        with pytest.raises(VerbsError, match="not open") as caught:
            attempt()
        assert caught.value.errno == EBADF


def test_exports_refused() -> None:
    node = Node()
    memory = node.gpu.allocate(2 * MIB)
    managed = node.gpu.allocate(2 * MIB, AllocationType.MANAGED)
    for address, length, errno in (
        (memory.address + 512, PAGE_4K, EINVAL),
        (memory.address, 100, EINVAL),
        (memory.address, 0, EINVAL),
        (memory.address, 4 * MIB, EINVAL),
        (managed.address, 2 * MIB, EINVAL),
        (managed.end, PAGE_4K, EINVAL),
        (node.gpu.end, PAGE_4K, ENODEV),
    ):
        with pytest.raises(VerbsError) as caught:
            export_dmabuf(node.driver, address, length)
        assert caught.value.errno == errno
    assert not node.gpu.holders


def test_an_aperture_too_small_for_the_buffer() -> None:
    node = Node()
    memory = node.gpu.allocate(16 * MIB)
    fd = node.files.open(export_dmabuf(node.driver, memory.address, 16 * MIB))
    with pytest.raises(VerbsError) as caught:
        reg_dmabuf_mr(node.registrar, node.files, node.pd, DmaBufRange(0, 8, 0, fd), RIGHTS)
    assert caught.value.errno == ENOMEM
    assert len(node.keys) == 0
