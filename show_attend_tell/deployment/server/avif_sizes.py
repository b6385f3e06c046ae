"""Read every size that an AVIF file states, before it is decoded.

The size in the container, which Pillow reports, may be a lie: the decoder allocates the
frames of the AV1 stream, whose size is stated there. A file of 4 kB can hold frames of
268 megapixels under a header of 100 x 100.

ISO/IEC 14496-12 (boxes), https://aomediacodec.github.io/av1-spec/ (5.3 OBUs, 5.5.1
sequence header), https://aomediacodec.github.io/av1-avif/
"""

import struct
from collections.abc import Iterator

_SEQUENCE_HEADER = 1  # type of an OBU
_SEQUENCE_BYTES = 128  # more than a sequence header has before the size
# Real files stay far below; hostile ones would take minutes.
_MAX_PARTS = 10_000  # boxes in a box, or OBUs of an item
_MAX_TABLE = 65_536  # bytes of the table of items


class AvifError(ValueError):
    """The file is no AVIF picture, or a damaged one."""


class _Bits:
    """Reads numbers from bytes, the highest bit first."""

    def __init__(self, data: bytes):
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def read(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise AvifError("its data end early")
        return (self._value >> self._left) & ((1 << count) - 1)


def avif_sizes(content: bytes) -> list[tuple[int, int]]:
    """Return width and height of each picture and each AV1 frame of a file.

    Raises:
        AvifError: it is damaged, or an animation, whose frames are elsewhere.
    """
    try:
        return list(_sizes(content))
    except (struct.error, IndexError):
        raise AvifError("its data end early") from None


def _sizes(content: bytes) -> Iterator[tuple[int, int]]:
    boxes = list(_boxes(content))
    if any(kind == b"moov" for kind, _ in boxes):
        raise AvifError("an animation; send one picture")
    for kind, meta in boxes:
        if kind != b"meta":
            continue
        parts = meta[4:]  # after version and flags
        # ispe has the sizes in the container, one for each picture and tile.
        for name, value in _boxes(_only_box(_only_box(parts, b"iprp"), b"ipco")):
            if name == b"ispe":
                # After version and flags.
                yield struct.unpack_from(">II", value, 4)
        pictures = _av1_items(_only_box(parts, b"iinf"))
        inside = _only_box(parts, b"idat")
        for item, data in _item_data(_only_box(parts, b"iloc"), content, inside):
            if item in pictures:
                yield from _frame_sizes(data)


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of each box."""
    at = 0
    count = 0
    while at + 8 <= len(data):
        count += 1
        if count > _MAX_PARTS:
            raise AvifError("it has too many boxes")
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        elif size == 0:  # to the end
            size = len(data) - at
        # Smaller than its own header: the loop would not move on.
        if at + size < start:
            raise AvifError("a box has a wrong size")
        yield kind, data[start : at + size]
        at += size


def _only_box(data: bytes, kind: bytes) -> bytes:
    """Return the content of the box of a kind, empty without one."""
    found = [content for name, content in _boxes(data) if name == kind]
    # The decoder might read the other one.
    if len(found) > 1:
        raise AvifError(f"it has two boxes {kind.decode()}")
    return found[0] if found else b""


def _av1_items(iinf: bytes) -> set[int]:
    """Return the numbers of the items that are AV1 pictures."""
    found = set()
    entries = iinf[6:] if iinf[:1] == b"\0" else iinf[8:]  # a count of 2 or 4 bytes
    for kind, entry in _boxes(entries):
        if kind != b"infe":
            continue
        number = ">H" if entry[0] < 3 else ">I"
        (item,) = struct.unpack_from(number, entry, 4)
        at = 4 + struct.calcsize(number) + 2  # after the number and the protection
        if entry[at : at + 4] == b"av01":
            found.add(item)
    return found


def _item_data(iloc: bytes, content: bytes, idat: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and data of each item, which are in the file or in the box idat."""
    if not iloc:
        return
    if len(iloc) > _MAX_TABLE:
        raise AvifError("it has too many items")
    version = iloc[0]
    # The widths of the fields below are in the table, as multiples of a byte.
    bits = _Bits(iloc[4:])
    offset_bits = 8 * bits.read(4)
    length_bits = 8 * bits.read(4)
    base_bits = 8 * bits.read(4)
    index_bits = 8 * bits.read(4)
    if version == 0:
        index_bits = 0
    number_bits = 16 if version < 2 else 32
    by_method = {0: content, 1: idat}  # construction_method; 2, of items, is not read
    left = 2 * len(content)  # bytes of all items, which may share some
    for _ in range(bits.read(number_bits)):
        item = bits.read(number_bits)
        method = bits.read(16) & 15 if version else 0
        bits.read(16)  # reference to another file, which is never opened
        base = bits.read(base_bits)
        parts = []
        for _ in range(bits.read(16)):
            bits.read(index_bits)
            start = base + bits.read(offset_bits)
            length = bits.read(length_bits)
            source = by_method.get(method, b"")
            # A length of 0 is the whole rest.
            end = start + length if length else len(source)
            parts.append(source[start:end])
            left -= len(parts[-1])
            if left < 0:
                raise AvifError("its items overlap")
        yield item, b"".join(parts)


def _frame_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the largest frame of each sequence header of an AV1 stream."""
    at = 0
    count = 0
    while at < len(data):
        count += 1
        if count > _MAX_PARTS:
            raise AvifError("it has too many parts")
        header = data[at]
        at += 2 if header & 4 else 1  # with an extension
        size = len(data) - at
        if header & 2:  # has a size, in groups of seven bits, the lowest first
            size = 0
            for shift in range(0, 56, 7):
                byte = data[at]
                at += 1
                size |= (byte & 127) << shift
                if byte < 128:
                    break
        if header >> 3 & 15 == _SEQUENCE_HEADER:
            start = data[at : at + min(size, _SEQUENCE_BYTES)]
            yield _sequence_size(_Bits(start))
        at += size


def _sequence_size(bits: _Bits) -> tuple[int, int]:
    """Return the largest width and height of frames after a sequence header."""
    bits.read(4)  # seq_profile, still_picture
    is_reduced = bits.read(1)
    if is_reduced:
        bits.read(5)  # seq_level_idx
    else:
        _skip_operating_points(bits)
    # frame_width_bits_minus_1, and below max_frame_width_minus_1.
    width_bits = bits.read(4) + 1
    height_bits = bits.read(4) + 1
    return bits.read(width_bits) + 1, bits.read(height_bits) + 1


def _skip_operating_points(bits: _Bits) -> None:
    """Skip timing and operating points, which still pictures omit."""
    delay_bits = None
    if bits.read(1):  # timing_info_present_flag
        bits.read(64)
        if bits.read(1):  # equal_picture_interval
            zeros = 0
            while not bits.read(1):  # uvlc()
                zeros += 1
            if zeros < 32:
                bits.read(zeros)
        if bits.read(1):  # decoder_model_info_present_flag
            delay_bits = bits.read(5) + 1
            bits.read(42)
    has_display_delay = bits.read(1)
    for _ in range(bits.read(5) + 1):
        bits.read(12)  # operating_point_idc
        if bits.read(5) > 7:  # seq_level_idx
            bits.read(1)  # seq_tier
        if delay_bits is not None and bits.read(1):
            bits.read(2 * delay_bits + 1)
        if has_display_delay and bits.read(1):
            bits.read(4)
