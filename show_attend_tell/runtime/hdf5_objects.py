"""Refuse HDF5 files whose data are elsewhere, before anything reads the data."""

from contextlib import AbstractContextManager

import h5py

from show_attend_tell.runtime.untrusted import as_value_error

# gzip, shuffle, checksums, and Blosc of feature files.
_FILTERS = {1, 2, 3, 32001}


def hdf5_faults() -> AbstractContextManager[None]:
    """Raise a ValueError in place of what h5py raises for damaged files.

    It raises a KeyError for what is absent, a TypeError for types that NumPy lacks, and
    a RuntimeError for objects that it cannot read. Call only h5py in the body.
    """
    return as_value_error(KeyError, TypeError, RuntimeError)


def own_item(group: h5py.Group, name: str) -> h5py.Group | h5py.Dataset:
    """Return a member of a group whose values are in the file itself.

    Raises:
        ValueError: the member is absent, a link to another object, or a dataset in
            another file, of other datasets, or with unknown filters.
    """
    with hdf5_faults():
        # Looked at before it is followed: other links than hard ones may lead anywhere.
        link = group.get(name, getlink=True)
        item = group[name] if isinstance(link, h5py.HardLink) else None
        if isinstance(item, h5py.Dataset):
            plist = item.id.get_create_plist()
            filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
            if item.is_virtual or item.external or not filters <= _FILTERS:
                item = None
    if not isinstance(item, h5py.Group | h5py.Dataset):
        raise ValueError(f"`{name}` must be a dataset or a group of this file")
    return item


def own_dataset(group: h5py.Group, name: str) -> h5py.Dataset:
    """Return a dataset whose values are in the file itself, or raise a ValueError."""
    item = own_item(group, name)
    if not isinstance(item, h5py.Dataset):
        raise ValueError(f"`{name}` must be a dataset")
    return item


def require_own_data(file: h5py.File, most: int) -> None:
    """Raise a ValueError unless a file has at most `most` numbers, all in itself."""
    waiting = [file]
    seen = set()
    while waiting:
        group = waiting.pop()
        with hdf5_faults():
            names = list(group)
        for name in names:
            item = own_item(group, name)
            with hdf5_faults():
                address = h5py.h5o.get_info(item.id).addr
            # Hard links may form a circle, in which this walk would never end.
            if address in seen:
                raise ValueError(f"`{name}` must have one name only")
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append(item)
                continue
            # The size of a dataset with a null dataspace is None.
            most -= item.size or 0
            if most < 0:
                raise ValueError("it holds more numbers than it may")
