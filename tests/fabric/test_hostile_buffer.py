"""Registered memory has an end, for those who read and write it by hand too."""

import pytest

from rdmawire.errors import MemoryFault
from rdmawire.fabric.host import Host


@pytest.mark.parametrize(
    ("length", "offset"), [(1, 100), (101, 0), (8, -8), (-8, 50), (8, 1 << 40)]
)
def test_what_lies_outside_is_a_fault(length: int, offset: int) -> None:
    buffer = Host().buffer(100)
    with pytest.raises(MemoryFault, match="outside the 100 octets"):
        buffer.read(length, offset)
    if length > 0:
        with pytest.raises(MemoryFault):
            buffer.write(bytes(length), offset)
    assert buffer.memory.pages.held == 0
    assert buffer.read(0, 100) == b""
