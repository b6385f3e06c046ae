"""Read arrays from the HDF5 files that h5py writes by default.

A file is a tree of groups. A group has a B-tree of the names of its members; a member
has a header of messages, which state an array's shape, type, filters and place: one
block, or chunks listed in another B-tree. Everything is an address in one string of
bytes. Only these forms are read; links, external and virtual data have others.

"HDF5 File Format Specification Version 3.0", The HDF Group.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

_SIGNATURE = b"\x89HDF\r\n\x1a\n\0"  # and version 0 of the superblock
_ROOT = 64  # address of the address of the root group's header
_NOWHERE = 2**64 - 1
# Messages of a header; those of other numbers are refused.
_SHAPE, _TYPE, _LAYOUT, _FILTERS, _CONTINUED, _MEMBERS = 1, 3, 8, 11, 16, 17
_IGNORED = {0, 5, 12, 18}  # nothing, fill value, attribute, time of modification
_DEFLATE, _SHUFFLE = 1, 2
_MOST_DEFLATED = 1032  # bytes that one compressed byte can become
_TYPES: dict[bytes, np.dtype[Any]] = {
    bytes.fromhex("11200f00 02000000 00001000 0a05000a 0f000000"): np.dtype("<f2"),
    bytes.fromhex("11201f00 04000000 00002000 17080017 7f000000"): np.dtype("<f4"),
    bytes.fromhex("10080000 01000000 00000800"): np.dtype("i1"),
}


class _Node(NamedTuple):
    """A node of a B-tree."""

    level: int  # 0: its children are no nodes
    keys: list[bytes]
    children: list[int]


class Hdf5File:
    """The arrays of a file.

    Args:
        content: the bytes of the file.

    Raises:
        ValueError: the file is damaged, or has another form; also by :meth:`read`.
    """

    def __init__(self, content: bytes):
        self._content = content
        if not content.startswith(_SIGNATURE) or content[13:15] != b"\x08\x08":
            raise ValueError("not an HDF5 file of h5py's default format")
        self._groups: dict[int, dict[str, int]] = {}
        (self._root,) = self._unpack("<Q", _ROOT)

    def __contains__(self, path: str) -> bool:
        return self._address(path) is not None

    def shapes(self, excluded: str = "") -> dict[str, tuple[int, ...]]:
        """Return the shape of each array by its path, without reading the arrays.

        Args:
            excluded: name of a group of the root that is not looked at.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        waiting = [("", self._root)]
        seen = {self._root}
        while waiting:
            place, group = waiting.pop()
            members = self._members(group)
            addresses = set(members.values())
            if seen & addresses or len(addresses) < len(members):
                raise ValueError("an object with two names")
            seen |= addresses
            for name, address in members.items():
                path, messages = f"{place}{name}", self._messages(address)
                if _MEMBERS not in messages:
                    shapes[path] = self._shape(self._array(path)[_SHAPE])
                elif path != excluded:
                    waiting.append((f"{path}/", address))
        return shapes

    def _array(self, path: str) -> dict[int, bytes]:
        """Return the messages of an array."""
        address = self._address(path)
        if address is None:
            raise ValueError(f"`{path}` is missing")
        messages = self._messages(address)
        if not messages.keys() >= {_SHAPE, _TYPE, _LAYOUT}:
            raise ValueError(f"`{path}` is no array")
        return messages

    def require(self, path: str, shape: tuple[int, ...]) -> dict[int, bytes]:
        """Return the messages of an array, which must have a shape."""
        messages = self._array(path)
        stored = self._shape(messages[_SHAPE])
        if stored != tuple(shape):
            raise ValueError(f"`{path}` must be {tuple(shape)}. Received: {stored}")
        return messages

    def read(self, path: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return the array at a path, such as ``decoder/vars/0``.

        Args:
            path: names of the groups and of the array.
            shape: the shape that it must have; nothing is allocated for another.
        """
        messages = self.require(path, shape)
        dtype = self._type(messages[_TYPE], path)
        if math.prod(shape) * dtype.itemsize > _MOST_DEFLATED * len(self._content):
            raise ValueError(f"`{path}` is larger than the file can hold")
        layout = messages[_LAYOUT]
        if layout[:2] == b"\x03\x01":  # one block
            start, size = struct.unpack_from("<QQ", layout, 2)
            data = self._slice(start, math.prod(shape) * dtype.itemsize)
            return np.frombuffer(data, dtype).reshape(shape)
        if layout[:2] == b"\x03\x02":
            filters = self._filters(messages.get(_FILTERS, b""))
            return self._chunks(layout, filters, shape, dtype)
        raise ValueError(f"`{path}` has another layout than blocks or chunks")

    def _slice(self, start: int, size: int) -> bytes:
        if not 0 <= start <= start + size <= len(self._content):
            raise ValueError(f"it ends before byte {start + size}")
        return self._content[start : start + size]

    def _unpack(self, form: str, start: int) -> tuple[Any, ...]:
        return struct.unpack(form, self._slice(start, struct.calcsize(form)))

    def _address(self, path: str) -> int | None:
        """Return the address of a member's header, None if there is no member."""
        address: int = self._root
        for name in path.split("/"):
            members = self._members(address)
            if name not in members:
                return None
            address = members[name]
        return address

    def _messages(self, address: int) -> dict[int, bytes]:
        """Return the messages of a header by number."""
        version, count, size = self._unpack("<BxHxxxxI", address)
        if version != 1:
            raise ValueError("a header of another version")
        blocks, messages = [(address + 16, size)], {}
        for start, size in blocks:  # grows below
            end = start + size
            while start + 8 <= end and count:
                number, length, flags = self._unpack("<HHBxxx", start)
                data = self._slice(start + 8, length)
                start, count = start + 8 + length, count - 1
                if number == _CONTINUED:
                    blocks.append(struct.unpack_from("<QQ", data))
                elif number not in _IGNORED:
                    if number not in (_SHAPE, _TYPE, _LAYOUT, _FILTERS, _MEMBERS):
                        raise ValueError(f"a header with message {number}")
                    if flags & 2:
                        raise ValueError("a message of another header")
                    messages[number] = data
        return messages

    def _members(self, address: int) -> dict[str, int]:
        """Return the headers of a group's members by name."""
        if address not in self._groups:
            members, messages = {}, self._messages(address)
            if _MEMBERS in messages:
                tree, heap = struct.unpack_from("<QQ", messages[_MEMBERS])
                sign, names = self._unpack("<4s20xQ", heap)
                if sign != b"HEAP":
                    raise ValueError("a group without names")
                for _, leaf in self._entries(tree, 0, 8):
                    sign, count = self._unpack("<4sxxH", leaf)
                    if sign != b"SNOD":
                        raise ValueError("a group without members")
                    for k in range(count):
                        name, header, link = self._unpack("<QQI", leaf + 8 + 40 * k)
                        if link == 2 or header == _NOWHERE:
                            raise ValueError("a symbolic link")
                        members[self._name(names + name)] = header
            self._groups[address] = members
        return self._groups[address]

    def _name(self, start: int) -> str:
        end = self._content.find(b"\0", start, start + 256)
        return self._slice(start, max(end - start, 0)).decode("utf-8", "replace")

    def _entries(
        self, address: int, kind: int, size: int
    ) -> Iterator[tuple[bytes, int]]:
        """Yield (key, address) of the leaves of a B-tree with keys of `size` bytes."""
        waiting, seen = [address], {address}
        while waiting:
            node = self._node(waiting.pop(), kind, size)
            if node.level == 0:
                yield from zip(node.keys, node.children, strict=True)
                continue
            if seen & set(node.children):
                raise ValueError("a tree with a circle")
            seen.update(node.children)
            waiting += node.children

    def _node(self, address: int, kind: int, size: int) -> _Node:
        sign, found, level, count = self._unpack("<4sBBH", address)
        if (sign, found) != (b"TREE", kind):
            raise ValueError("a tree of another kind")
        data = self._slice(address + 24, count * (size + 8))
        keys = [data[k : k + size] for k in range(0, len(data), size + 8)]
        children = [
            struct.unpack_from("<Q", data, k)[0]
            for k in range(size, len(data), size + 8)
        ]
        return _Node(level, keys, children)

    @staticmethod
    def _shape(data: bytes) -> tuple[int, ...]:
        version, rank = data[:2]
        return struct.unpack_from(f"<{rank}Q", data, 8 if version == 1 else 4)

    @staticmethod
    def _type(data: bytes, path: str) -> np.dtype[Any]:
        for form, dtype in _TYPES.items():
            if data.startswith(form):
                return dtype
        raise ValueError(f"`{path}` must be float16, float32 or int8")

    @staticmethod
    def _filters(data: bytes) -> list[int]:
        """Return the numbers of the filters, in the order of writing."""
        if not data:
            return []
        if data[0] != 1:
            raise ValueError("filters of another version")
        numbers, start = [], 8
        for _ in range(data[1]):
            number, name, _, values = struct.unpack_from("<HHHH", data, start)
            numbers.append(number)
            start += 8 + -(-name // 8) * 8 + 4 * (values + values % 2)
        if not set(numbers) <= {_DEFLATE, _SHUFFLE}:
            raise ValueError("filters other than gzip and shuffle")
        return numbers

    def _chunks(
        self,
        layout: bytes,
        filters: list[int],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> np.ndarray:
        """Return an array of equal chunks, of which the last may reach beyond it."""
        rank = len(shape)
        tree, *sides = struct.unpack_from(f"<Q{rank}I", layout, 3)
        if layout[2] != rank + 1 or not all(sides) or tree == _NOWHERE:
            raise ValueError("chunks of another rank")
        size = math.prod(sides) * dtype.itemsize
        if size > _MOST_DEFLATED * len(self._content):
            raise ValueError("chunks larger than the file can hold")
        if any(s > n for n, s in zip(shape, sides, strict=False)):
            raise ValueError("chunks larger than the array")
        counts = [-(-n // s) for n, s in zip(shape, sides, strict=False)]
        seen: set[tuple[int, ...]] = set()
        array = np.empty(shape, dtype)
        for key, address in self._entries(tree, 1, 8 * (rank + 2)):
            stored, mask, *first = struct.unpack_from(f"<II{rank}Q", key)
            place = tuple(f // s for f, s in zip(first, sides, strict=False))
            outside = any(p >= n for p, n in zip(place, counts, strict=True))
            if outside or place in seen:
                raise ValueError("a chunk twice or outside")
            seen.add(place)
            data = self._slice(address, stored)
            used = [f for bit, f in enumerate(filters) if not mask >> bit & 1]
            chunk = np.frombuffer(_unfiltered(data, used, size, dtype), dtype)
            where = tuple(slice(f, f + s) for f, s in zip(first, sides, strict=False))
            target = array[where]
            inside = tuple(slice(0, n) for n in target.shape)
            target[...] = chunk.reshape(sides)[inside]
        if len(seen) < math.prod(counts):
            raise ValueError("chunks are missing")
        return array


def _unfiltered(
    data: bytes, filters: list[int], size: int, dtype: np.dtype[Any]
) -> bytes:
    """Undo the filters of a chunk of `size` bytes."""
    for number in reversed(filters):
        if number == _DEFLATE:
            data = zlib.decompressobj().decompress(data, size)
        elif len(data) == size:  # the first bytes of all numbers, then the second
            planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
            data = np.stack(list(planes), axis=1).tobytes()
    if len(data) != size:
        raise ValueError("a chunk of another size")
    return data
