"""Compressed files: recognised by their first bytes, unpacked and packed as they stream.

Bytes go into a decoder in slices, so that what comes out at once stays bounded whatever they
claim (zstd, the worst, makes 32768 of one), and that little of what stands before damage is
lost with it. The last bytes go in one by one: the checksum stands there, and what it is of
is good to have even if it does not match.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from rdmawire.errors import CaptureError

CHUNK = 1 << 18
"""Bytes that are read and written at once."""

_SLICE = 1 << 9
_TAIL = 64
_DICTIONARY = 1 << 28  # bytes of memory that xz may ask for: four times what xz -9 needs


class Decoder(Protocol):
    """Unpacks one member of a compressed file."""

    def decompress(self, data: bytes, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class Encoder(Protocol):
    """Packs a compressed file."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Codec(Protocol):
    """One way to compress. Its library is imported when an instance is made."""

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def decoder(self) -> Decoder: ...

    def encoder(self) -> Encoder: ...


class Gzip:
    """RFC 1952."""

    errors = (zlib.error,)

    def decoder(self) -> Decoder:
        return zlib.decompressobj(wbits=31)

    def encoder(self) -> Encoder:
        return zlib.compressobj(wbits=31)


class Xz:
    """The .xz file format, https://tukaani.org/xz/xz-file-format.txt."""

    def __init__(self) -> None:
        import lzma

        self._lzma = lzma
        self.errors = (lzma.LZMAError,)

    def decoder(self) -> Decoder:
        return self._lzma.LZMADecompressor(self._lzma.FORMAT_XZ, memlimit=_DICTIONARY)

    def encoder(self) -> Encoder:
        return self._lzma.LZMACompressor()


class Zstd:
    """RFC 8878. The library takes windows of up to 128 MiB, as ``zstd --long`` makes."""

    def __init__(self) -> None:
        import zstandard

        self._zstandard = zstandard
        self.errors = (zstandard.ZstdError,)
        self._decompressor = zstandard.ZstdDecompressor()

    def decoder(self) -> Decoder:
        return self._decompressor.decompressobj()

    def encoder(self) -> Encoder:
        return self._zstandard.ZstdCompressor(write_checksum=True).compressobj()


class Lz4:
    """The LZ4 frame format, lz4_Frame_format.md in https://github.com/lz4/lz4."""

    errors = (RuntimeError,)

    def decoder(self) -> Decoder:
        from lz4.frame import LZ4FrameDecompressor

        decoder: Decoder = LZ4FrameDecompressor()
        return decoder

    def encoder(self) -> Encoder:
        return Lz4Encoder()


class Lz4Encoder:
    """The library's encoder, with the frame header put before what comes first."""

    def __init__(self) -> None:
        from lz4.frame import LZ4FrameCompressor

        self._encoder = LZ4FrameCompressor(content_checksum=True)
        self._header: bytes = self._encoder.begin()

    def compress(self, data: bytes) -> bytes:
        return self._begun(self._encoder.compress(data))

    def flush(self) -> bytes:
        return self._begun(self._encoder.flush())

    def _begun(self, packed: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + packed


@dataclass(frozen=True, slots=True)
class Compression:
    """A way to compress: how its files begin and are named.

    ``pad``: bytes that may stand between the members of a file.
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
        Compression("gzip", (b"\x1f\x8b",), ".gz", Gzip, b"\0"),
        Compression("xz", (b"\xfd7zXZ\0",), ".xz", Xz, b"\0"),
        # A skippable frame may stand first, as pzstd writes; the lz4 tools write none.
        Compression("zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE), ".zst", Zstd),
        Compression("lz4", (b"\x04\x22\x4d\x18",), ".lz4", Lz4),
    )
}


def recognised(chunks: Iterator[bytes], name: str) -> tuple[str, Iterator[bytes]]:
    """How these bytes are compressed, ``""`` if not, and the uncompressed ones in chunks."""
    head = b""
    while len(head) < 6 and (chunk := next(chunks, b"")):
        head += chunk
    chunks = chain([head] if head else [], chunks)
    for compression in COMPRESSIONS.values():
        if head.startswith(compression.magics):
            return compression.name, decompressed(chunks, compression, name)
    return "", chunks


def decompressed(chunks: Iterator[bytes], compression: Compression, name: str) -> Iterator[bytes]:
    """The uncompressed bytes in chunks; all that stand before damage come before its error."""
    unpacker = Unpacker(compression, name)
    gathered = bytearray()
    try:
        for piece in _sliced(chunks):
            for unpacked in unpacker.unpack(piece):
                gathered += unpacked
            if len(gathered) >= CHUNK or (gathered and not piece):
                yield bytes(gathered)
                gathered.clear()
        unpacker.end()
    except CaptureError:
        if gathered:
            yield bytes(gathered)
        raise
    if gathered:
        yield bytes(gathered)


def _sliced(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes in slices, the last ones singly; an empty slice where one has to be waited for."""
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


class Unpacker:
    """Unpacks the members of a compressed file one after the other."""

    def __init__(self, compression: Compression, name: str) -> None:
        self._compression = compression
        self._codec = compression.codec()
        self._decoder: Decoder | None = None
        self._name = name
        self._given = 0

    def unpack(self, packed: bytes) -> Iterator[bytes]:
        """What comes out of these bytes, member by member."""
        while packed:
            if self._decoder is None:
                packed = packed.lstrip(self._compression.pad)
                if not packed:
                    return
                self._decoder = self._codec.decoder()
            yield self._decompressed(self._decoder, packed)
            packed = b""
            if self._decoder.eof:
                packed, self._decoder = self._decoder.unused_data or b"", None

    def _decompressed(self, decoder: Decoder, packed: bytes) -> bytes:
        try:
            unpacked = decoder.decompress(packed)
        except self._codec.errors as error:
            raise self._damage(f"damaged: {error}") from error
        self._given += len(unpacked)
        return unpacked

    def end(self) -> None:
        """Nothing follows; :class:`CaptureError` if a member is not at its end."""
        if self._decoder is not None:
            raise self._damage("cut: they end before their end mark")

    def _damage(self, reason: str) -> CaptureError:
        """The error, at the place in the uncompressed file."""
        return CaptureError(
            f"{self._name}: its {self._compression.name} data are {reason}", self._given
        )
