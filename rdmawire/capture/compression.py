"""Compressed files: recognised by their first bytes, decompressed and compressed as they stream.

A decoder gets its input in small slices, so that its output is bounded for any file (zstd, the
worst case, expands one byte to 32768), and little is lost before damage. The last bytes are passed
singly: they hold the checksum, and the data that it covers are useful even if it is wrong.
"""

import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol

from rdmawire.errors import CaptureError

CHUNK = 1 << 17
"""Bytes read or written at once.

Of larger blocks, glibc may return each one to the system when it is freed (mallopt(3),
M_TRIM_THRESHOLD): the page faults of the next one cost more than reading it.
"""

_SLICE = 1 << 9
_TAIL = 64
_XZ_MEMORY = 1 << 28
"""Memory limit of the xz decoder in bytes: four times what ``xz -9`` needs."""


class Decoder(Protocol):
    """Decompresses one member of a compressed file."""

    def decompress(self, data: bytes, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class Encoder(Protocol):
    """Compresses a file."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Codec(NamedTuple):
    """A library's functions for one format: decoders, encoders, and the errors of its decoders."""

    decoder: Callable[[], Decoder]
    encoder: Callable[[], Encoder]
    error: type[Exception]


def _gzip() -> Codec:
    """RFC 1952."""
    return Codec(
        partial(zlib.decompressobj, wbits=31), partial(zlib.compressobj, wbits=31), zlib.error
    )


def _xz() -> Codec:
    """The .xz file format, https://tukaani.org/xz/xz-file-format.txt."""
    import lzma

    decoder = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    return Codec(decoder, lzma.LZMACompressor, lzma.LZMAError)


def _zstd() -> Codec:
    """RFC 8878. The library takes windows of up to 128 MiB, as ``zstd --long`` makes."""
    import zstandard

    encoder = zstandard.ZstdCompressor(write_checksum=True).compressobj
    return Codec(zstandard.ZstdDecompressor().decompressobj, encoder, zstandard.ZstdError)


def _lz4() -> Codec:
    """The LZ4 frame format, lz4_Frame_format.md in https://github.com/lz4/lz4."""
    from lz4.frame import LZ4FrameDecompressor

    return Codec(LZ4FrameDecompressor, _Lz4Encoder, RuntimeError)


class _Lz4Encoder:
    """The library's encoder, with the frame header before its first output."""

    def __init__(self) -> None:
        from lz4.frame import LZ4FrameCompressor

        self._encoder = LZ4FrameCompressor(content_checksum=True)
        self._header: bytes = self._encoder.begin()

    def compress(self, data: bytes) -> bytes:
        return self._with_header(self._encoder.compress(data))

    def flush(self) -> bytes:
        return self._with_header(self._encoder.flush())

    def _with_header(self, compressed: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + compressed


class Compression(NamedTuple):
    """A compression: the first bytes and the suffix of its files, and its codec.

    ``codec`` imports the library when it is called. ``pad`` is the byte that may fill the space
    between the members of a file.
    """

    name: str
    magics: tuple[bytes, ...]
    suffix: str
    codec: Callable[[], Codec]
    pad: bytes = b""


_SKIPPABLE = tuple(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60))

COMPRESSIONS = {
    compression.name: compression
    for compression in (
        Compression("gzip", (b"\x1f\x8b",), ".gz", _gzip, b"\0"),
        Compression("xz", (b"\xfd7zXZ\0",), ".xz", _xz, b"\0"),
        # A file may begin with a skippable frame, as pzstd writes it; the lz4 tools write none.
        Compression("zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE), ".zst", _zstd),
        Compression("lz4", (b"\x04\x22\x4d\x18",), ".lz4", _lz4),
    )
}


def recognise(chunks: Iterator[bytes], name: str) -> tuple[str, Iterator[bytes]]:
    """Return the compression of a file, ``""`` for none, and its decompressed bytes in chunks.

    ``name`` is the file's name in errors. The chunks raise :class:`CaptureError` at damage, after
    all bytes that can be decompressed.
    """
    first = b""
    while len(first) < 6 and (chunk := next(chunks, b"")):
        first += chunk
    chunks = chain([first] if first else [], chunks)
    for compression in COMPRESSIONS.values():
        if first.startswith(compression.magics):
            return compression.name, _decompressed(chunks, compression, name)
    return "", chunks


def _decompressed(chunks: Iterator[bytes], compression: Compression, name: str) -> Iterator[bytes]:
    """Yield the decompressed bytes in chunks; at damage, raise after all bytes before it."""
    decompressor = _Decompressor(compression, name)
    pending = bytearray()
    try:
        for part in _sliced(chunks):
            for data in decompressor.add(part):
                pending += data
            if len(pending) >= CHUNK or (pending and not part):
                yield bytes(pending)
                pending.clear()
        decompressor.end()
    except CaptureError:
        if pending:
            yield bytes(pending)
        raise
    if pending:
        yield bytes(pending)


def _sliced(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the input in slices, its last bytes singly, and an empty slice after each chunk.

    The next chunk of a pipe may not be available yet: the caller first passes on its output.
    """
    held = b""
    for chunk in chunks:
        data = held + chunk
        end = max(len(data) - _TAIL, 0)
        for at in range(0, end, _SLICE):
            yield data[at : min(at + _SLICE, end)]
        held = data[end:]
        yield b""
    for at in range(len(held)):
        yield held[at : at + 1]


class _Decompressor:
    """Decompresses the members of a file one after the other."""

    def __init__(self, compression: Compression, name: str) -> None:
        self._compression = compression
        self._codec = compression.codec()
        self._decoder: Decoder | None = None
        self._name = name
        self._size = 0  # of the output so far

    def add(self, compressed: bytes) -> Iterator[bytes]:
        """Yield the output for more input, member by member; raises ``CaptureError`` at damage."""
        while compressed:
            if self._decoder is None:
                compressed = compressed.lstrip(self._compression.pad)
                if not compressed:
                    return
                self._decoder = self._codec.decoder()
            try:
                data = self._decoder.decompress(compressed)
            except self._codec.error as error:
                raise self._damage(f"damaged: {error}") from error
            self._size += len(data)
            yield data
            compressed = b""
            if self._decoder.eof:
                compressed, self._decoder = self._decoder.unused_data or b"", None

    def end(self) -> None:
        """Raise :class:`CaptureError` if the input ended within a member."""
        if self._decoder is not None:
            raise self._damage("truncated: they end before their end mark")

    def _damage(self, reason: str) -> CaptureError:
        """Return the error, with its offset in the decompressed file."""
        return CaptureError(
            f"{self._name}: its {self._compression.name} data are {reason}", self._size
        )
