"""Many byte strings in one memory-mapped file: processes share it, and only the pages that are read take memory."""

import mmap
from array import array
from pathlib import Path

import numpy as np


def mapped_array(file: Path) -> np.ndarray:
    """Return the array of a `.npy` file, memory-mapped, read-only."""
    return np.asarray(np.load(file, mmap_mode="r"))  # a plain array: NumPy's memmap class makes every slice slow


class RecordWriter:
    """Writer of `<name>.bin`, the records one after the other, and `<name>_ends.npy`, int64: the end of each record."""

    def __init__(self, folder: Path, name: str):
        self._file = (folder / f"{name}.bin").open("wb")
        self._ends_file = folder / f"{name}_ends.npy"
        self._ends = array("q")
        self._size = 0

    def add(self, record: bytes) -> None:
        self._size += self._file.write(record)
        self._ends.append(self._size)

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        np.save(self._ends_file, np.frombuffer(self._ends, dtype=np.int64))


class Records:
    """Records of a `RecordWriter`, by number."""

    def __init__(self, folder: Path, name: str):
        self._ends = memoryview(mapped_array(folder / f"{name}_ends.npy"))  # type: ignore[arg-type] # ints, and fast
        with (folder / f"{name}.bin").open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if len(self._ends) else b""

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        start = self._ends[number - 1] if number else 0
        return self._bytes[start : self._ends[number]]
