"""Pieces of memory read and written as one, beside plain bytes."""

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric.host import ALL_ACCESS, Host
from rdmawire.memory.key import LOCAL_WRITE, KeyFault
from rdmawire.verbs.sge import Gather, Inline, Piece, gather
from rdmawire.verbs.wr import Sge

Local = Gather | Piece
SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=5)


class Pieces:
    """Memory of a host in pieces of these sizes, with bytes between them."""

    def __init__(self, sizes: list[int], access: int = ALL_ACCESS) -> None:
        self.host = Host()
        self.buffer = self.host.buffer(4096, access)
        self.sizes = sizes
        self.offsets = [16 * place + 3 for place in range(len(sizes))]
        self.sges = tuple(
            self.buffer.sge(size, offset) for size, offset in zip(sizes, self.offsets, strict=True)
        )

    def found(self, access: int = 0) -> Local | KeyFault:
        return gather(self.host.nic.device.keys, self.host.pd, self.sges, access)

    def whole(self) -> Local:
        found = self.found(LOCAL_WRITE)
        assert not isinstance(found, KeyFault)
        return found

    def data(self) -> bytes:
        return b"".join(
            self.buffer.read(size, offset)
            for size, offset in zip(self.sizes, self.offsets, strict=True)
        )


@given(sizes=SIZES, data=st.data())
def test_bytes_are_read_from_wherever_they_stand(sizes: list[int], data: st.DataObject) -> None:
    pieces = Pieces(sizes)
    pieces.buffer.write(bytes(range(128)))
    whole = pieces.whole()
    assert whole.length == sum(sizes)
    offset = data.draw(st.integers(0, whole.length))
    length = data.draw(st.integers(0, whole.length - offset))
    assert bytes(whole.read(offset, length)) == pieces.data()[offset : offset + length]


@given(sizes=SIZES, data=st.data())
def test_bytes_are_written_where_they_belong_and_nowhere_else(
    sizes: list[int], data: st.DataObject
) -> None:
    pieces = Pieces(sizes)
    whole = pieces.whole()
    offset = data.draw(st.integers(0, whole.length))
    length = data.draw(st.integers(0, whole.length - offset))
    if length:
        whole.write(offset, b"\xff" * length)
    expected = bytes(offset) + b"\xff" * length
    assert pieces.data() == expected.ljust(whole.length, b"\0")
    assert pieces.buffer.read().count(b"\xff") == length


def test_each_piece_needs_a_key_that_allows_it() -> None:
    assert Pieces([8, 8], access=0).found(LOCAL_WRITE) is KeyFault.NO_ACCESS
    assert isinstance(Pieces([8, 8], access=0).found(), Gather)
    pieces = Pieces([8, 8])
    for wrong, fault in (
        (Sge(0, 8, 0xBAD), KeyFault.INVALID_KEY),
        (pieces.buffer.sge(9, 4088), KeyFault.OUT_OF_RANGE),
    ):
        for sges in ((wrong,), (pieces.sges[0], wrong)):
            pieces.sges = sges
            assert pieces.found() is fault


def test_an_empty_piece_needs_no_key() -> None:
    pieces = Pieces([8])
    nothing = Sge(1, 0, 0xBAD)
    for sges in ((nothing,), (nothing, pieces.sges[0], nothing)):
        pieces.sges = sges
        found = pieces.found()
        assert not isinstance(found, KeyFault)
        assert found.length == sum(sge.length for sge in sges)


def test_bytes_in_the_work_itself_read_the_same() -> None:
    inline = Inline(b"hello")
    assert inline.length == 5
    assert [inline.read(at, 2) for at in (0, 3, 4)] == [b"he", b"lo", b"o"]
