"""Concatenated zstd frames: finding their borders without decoding, and coding one frame.

A compressed log is one frame for the header line and one per append, each with a checksum of its content. The borders
are read from the frame and block headers alone (RFC 8878, section 3.1.1), so a frame that the crash of a writer cut
short is told apart from one whose bytes were damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import zstandard

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFFFFF0
_DICT_BYTES: Final = (0, 1, 2, 4)
_RAW, _RLE, _RESERVED = 0, 1, 3
LEVEL: Final = 3


class BadFrameError(ValueError):
    """Bytes that are no zstd frame, or a whole frame whose content does not decode; `offset` is its start."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.offset = offset


def frame_end(data: bytes, start: int) -> int | None:
    """The offset behind the frame that begins at `start`; None if the data ends before the frame does.

    Raises BadFrameError for bytes that begin no frame.
    """
    size = len(data)
    if size - start < 5:
        _check_magic_prefix(data, start)
        return None
    magic = int.from_bytes(data[start : start + 4], "little")
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        end = start + 8 + int.from_bytes(data[start + 4 : start + 8], "little")
        return end if start + 8 <= size and end <= size else None
    if magic != _MAGIC:
        raise BadFrameError("no zstd frame", start)
    descriptor = data[start + 4]
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    at = start + 5 + (1 - single_segment) + _DICT_BYTES[descriptor & 3] + content_size
    while True:
        if at + 3 > size:
            return None
        block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        kind = block >> 1 & 3
        if kind == _RESERVED:
            raise BadFrameError("a block of unknown kind in the zstd frame", start)
        at += 3 + (1 if kind == _RLE else block >> 3)
        if block & 1:
            break
    end = at + (4 if descriptor >> 2 & 1 else 0)
    return end if end <= size else None


def _check_magic_prefix(data: bytes, start: int) -> None:
    head = data[start : start + 4]
    plain = _MAGIC.to_bytes(4, "little")
    if head != plain[: len(head)] and not (head[1:] == b"\x2a\x4d\x18"[: len(head) - 1] and head[:1] >= b"\x50"):
        raise BadFrameError("no zstd frame", start)


def walk(data: bytes) -> Iterator[tuple[int, int | None]]:
    """(start, end) of each frame; the last one has end None if the data stops inside it.

    A rest that is no frame counts as cut short too: file systems leave one, of zeros or of old bytes, where a write was
    lost with the power, and it hides nothing. Raises BadFrameError if there is a frame behind it, or none before it.
    """
    at, size = 0, len(data)
    while at < size:
        try:
            end = frame_end(data, at)
        except BadFrameError:
            if at == 0 or _holds_frame(data, at + 1):
                raise
            end = None
        yield at, end
        if end is None:
            return
        at = end


def _holds_frame(data: bytes, at: int) -> bool:
    """Whether a whole frame begins anywhere behind `at`."""
    magic = _MAGIC.to_bytes(4, "little")
    while (at := data.find(magic, at)) >= 0:
        with contextlib.suppress(BadFrameError):
            if frame_end(data, at) is not None:
                return True
        at += 1
    return False


class FrameCodec:
    """Encodes and decodes frames; one per thread, because a zstd context is not for sharing."""

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._compressor: zstandard.ZstdCompressor | None = None
        self._decompressor = zstandard.ZstdDecompressor()

    def encode(self, content: bytes) -> bytes:
        """One frame with a checksum."""
        if self._compressor is None:
            import zstandard

            self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
        return self._compressor.compress(content)

    def decode(self, data: bytes, start: int, end: int | None) -> bytes:
        """The content of the frame at `data[start:end]`; what there is of one that the end of `data` cuts short (None).

        Raises BadFrameError for a whole frame that does not decode.
        """
        try:
            return self._decompressor.decompressobj().decompress(data[start:end])
        except self._error as error:
            if end is None:
                return b""
            raise BadFrameError(f"damaged zstd frame ({error})", start) from error
