"""Compressed captures."""

import gzip
import lzma
import shutil
import subprocess
import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard

from rdmawire.capture.compression import COMPRESSIONS, recognise
from rdmawire.errors import CaptureError

from .samples import RECORDS, opened, pcap, pcap_header, read

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True),
}
TOOLS = {"gzip": "gzip", "xz": "xz", "zstd": "zstd", "lz4": "lz4"}
each = pytest.mark.parametrize("name", PACK)
PLAIN = pcap(RECORDS)
MANY = pcap(RECORDS * 500)


def unpacked(data: bytes, chunk: int = 1 << 20) -> tuple[bytes, CaptureError | None]:
    """What comes out, and the damage after it."""
    chunks = iter([data[at : at + chunk] for at in range(0, len(data), chunk)])
    found = bytearray()
    try:
        for piece in recognise(chunks, "sample")[1]:
            assert piece
            found += piece
    except CaptureError as error:
        return bytes(found), error
    return bytes(found), None


@each
@pytest.mark.parametrize("chunk", [1 << 20, 1000, 1])
def test_each_is_recognised_by_its_bytes(name: str, chunk: int) -> None:
    with opened(PACK[name](PLAIN), chunk) as reader:
        assert reader.compression == name
        assert reader.format == "pcap"
        assert list(reader) == RECORDS


def test_a_plain_file_is_passed_on_as_it_is() -> None:
    assert unpacked(PLAIN, 1) == (PLAIN, None)
    assert opened(PLAIN).compression == ""


@each
@pytest.mark.parametrize("chunk", [1 << 20, 100])
def test_members_one_after_the_other_are_one_file(name: str, chunk: int) -> None:
    parts = [MANY[at : at + 20_000] for at in range(0, len(MANY), 20_000)]
    assert unpacked(b"".join(map(PACK[name], parts)), chunk) == (MANY, None)


@each
def test_a_file_cut_anywhere_gives_what_can_be_unpacked_then_an_error(name: str) -> None:
    whole = PACK[name](PLAIN)
    lengths = []
    for length in range(7, len(whole)):
        found, damage = unpacked(whole[:length])
        assert damage is not None
        assert (
            damage.reason
            == f"sample: its {name} data are truncated: they end before their end mark"
        )
        assert damage.offset == len(found)
        assert PLAIN.startswith(found)
        lengths.append(len(found))
    # Without the checksum everything is there.
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(PLAIN)


@each
def test_records_before_a_cut_are_given(name: str) -> None:
    whole = PACK[name](bytes(MANY))
    found, damage = read(whole[:-1])
    assert found == RECORDS * 500
    assert damage is not None
    assert damage.offset == len(MANY)


@each
def test_a_wrong_checksum_comes_after_all_that_it_is_of(name: str) -> None:
    whole = bytearray(PACK[name](PLAIN))
    # Of xz the last bytes are a footer; the check is before the index of 8 bytes.
    whole[-24 if name == "xz" else -1] ^= 1
    found, damage = read(bytes(whole))
    assert found == RECORDS
    assert damage is not None
    assert damage.reason.startswith(f"sample: its {name} data are damaged: ")
    assert damage.offset == len(PLAIN)


@each
def test_what_is_no_member_after_one_is_damage(name: str) -> None:
    found, damage = unpacked(PACK[name](PLAIN) + b"something else that is long enough")
    assert found == PLAIN
    assert damage is not None


@pytest.mark.parametrize("name", ["gzip", "xz"])
def test_members_may_be_padded(name: str) -> None:
    packed = PACK[name](PLAIN) + bytes(512)
    assert unpacked(packed + packed) == (PLAIN + PLAIN, None)


def test_a_skippable_frame_may_come_first() -> None:
    frame = bytes.fromhex("502a4d18 03000000 616263")
    assert unpacked(frame + PACK["zstd"](PLAIN)) == (PLAIN, None)


def test_an_archive_of_nothing_is_an_empty_file() -> None:
    _, damage = read(gzip.compress(b""))
    assert damage is not None
    assert damage.reason == "sample: is empty; a capture has at least a header"


@pytest.mark.parametrize("name", PACK)
def test_what_is_packed_here_is_unpacked_by_the_libraries(name: str) -> None:
    encoder = COMPRESSIONS[name].codec().encoder()
    packed = b"".join([encoder.compress(MANY[:99]), encoder.compress(MANY[99:]), encoder.flush()])
    unpack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.decompress,
        "xz": lzma.decompress,
        "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
        "lz4": lz4.frame.decompress,
    }
    assert unpack[name](packed) == MANY


@each
def test_nothing_at_all_is_packed_as_a_file(name: str) -> None:
    encoder = COMPRESSIONS[name].codec().encoder()
    assert unpacked(encoder.flush()) == (b"", None)


@each
def test_what_the_tools_pack_is_unpacked(name: str) -> None:
    if shutil.which(TOOLS[name]) is None:
        pytest.skip(f"{TOOLS[name]} is not installed")
    tool = [TOOLS[name], "-c"]
    packed = subprocess.run(tool, input=MANY, capture_output=True, check=True).stdout
    assert unpacked(packed, 777) == (MANY, None)


def bomb(name: str) -> bytes:
    """100 MB of records without bytes, packed."""
    encoder: zlib._Compress | lzma.LZMACompressor | zstandard.ZstdCompressionObj
    if name == "gzip":
        encoder = zlib.compressobj(1, wbits=31)
    elif name == "xz":
        encoder = lzma.LZMACompressor(preset=0)
    else:
        encoder = zstandard.ZstdCompressor(1).compressobj()
    parts = [encoder.compress(pcap_header())]
    parts += [encoder.compress(bytes(1 << 20)) for _ in range(100)]
    return b"".join([*parts, encoder.flush()])


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_little_that_becomes_much_stays_bounded(name: str) -> None:
    packed = bomb(name)
    assert len(packed) < 1_000_000
    largest = 0
    total = 0
    tracemalloc.start()
    for piece in recognise(iter([packed]), "sample")[1]:
        largest = max(largest, len(piece))
        total += len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 24 + (100 << 20)
    assert largest < 20 << 20
    assert peak < 80 << 20


def test_a_dictionary_that_takes_too_much_memory_is_refused() -> None:
    packed = bytearray(lzma.compress(PLAIN))
    # The header of the first block: its size, flags, filter, and there the dictionary's size.
    packed[16] = 40
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    _, damage = unpacked(bytes(packed))
    assert damage is not None
    assert "Memory usage limit" in damage.reason
