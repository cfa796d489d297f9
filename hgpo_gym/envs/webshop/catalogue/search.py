"""BM25 over the products' texts, as Lucene scores them: the same products in the same order.

A term that occurs f times in a text of length l (in terms) adds

    w - w / (1 + f / (k1 * (1 - b + b * l / average length))),    w = repetitions in the query * idf

with idf = ln(1 + (N - n + 0.5) / (n + 0.5)) for a term in n of N texts, k1 = 0.9 and b = 0.4 (Anserini's defaults), and
no factor (k1 + 1). As in Lucene, l is rounded to what fits a byte, arithmetic is in single precision, and the sum over
terms in double. Equal scores are ordered by product id.
"""

import json
import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from hgpo_gym.envs.webshop.catalogue.analyzer import analyze
from hgpo_gym.envs.webshop.catalogue.records import Records, RecordWriter, mapped_array

K1, B = np.float32(0.9), np.float32(0.4)
_MOST_COUNTED = 2**16 - 1
_CHUNK = 1 << 21
"""Number of postings in memory while the index is built."""


def _length_of_byte(code: int) -> int:
    """Return the text length that Lucene's one-byte code stands for: exact below 40, then four significant bits."""
    if code < 24:
        return code
    exponent, mantissa = divmod(code - 24, 8)
    return 24 + (mantissa if exponent == 0 else (8 + mantissa) << (exponent - 1))


_LENGTHS = [_length_of_byte(code) for code in range(256)]


class IndexWriter:
    """Writer of a `SearchIndex` in `folder` from a sequence of texts. It holds only the vocabulary in memory.

    Use it as a context manager: its temporary files are removed at the end.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._vocabulary: defaultdict[str, int] = defaultdict()
        self._vocabulary.default_factory = self._vocabulary.__len__  # a new term gets the next number
        self._terms, self._counts = array("i"), array("H")
        self._distinct, self._lengths = array("i"), bytearray()
        self._length_sum = 0
        self._terms_file, self._counts_file = (
            (folder / name).open("w+b") for name in ("terms_by_product.tmp", "counts_by_product.tmp")
        )

    def __enter__(self) -> "IndexWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._terms_file, self._counts_file):
            file.close()
            Path(file.name).unlink()

    def add(self, text: str) -> None:
        counts = Counter(analyze(text))
        self._terms.extend(map(self._vocabulary.__getitem__, counts))
        self._counts.extend(map(min, counts.values(), repeat(_MOST_COUNTED)))
        length = counts.total()
        self._distinct.append(len(counts))
        self._lengths.append(bisect_right(_LENGTHS, length) - 1)
        self._length_sum += length
        if len(self._terms) >= _CHUNK:
            self._spill()

    def finish(self) -> None:
        """Write the index: terms in order, and for each term its postings in product order."""
        self._spill()
        row_of = np.empty(len(self._vocabulary), dtype=np.int32)
        with RecordWriter(self._folder, "terms") as terms:
            for row, term in enumerate(sorted(self._vocabulary)):  # texts and their UTF-8 bytes have the same order
                terms.add(term.encode("utf-8", "surrogatepass"))
                row_of[self._vocabulary[term]] = row
        self._vocabulary.clear()
        self._invert(row_of)
        np.save(self._folder / "lengths.npy", np.frombuffer(self._lengths, dtype=np.uint8))
        texts = int(np.count_nonzero(np.frombuffer(self._distinct, dtype=np.int32)))
        statistics = {"texts": texts, "average_length": self._length_sum / max(texts, 1)}
        (self._folder / "search.json").write_text(json.dumps(statistics))

    def _spill(self) -> None:
        for buffer, file in ((self._terms, self._terms_file), (self._counts, self._counts_file)):
            file.write(buffer)
            del buffer[:]

    def _invert(self, row_of: np.ndarray) -> None:
        """Invert the index from the terms of each product to the products of each term, a chunk of postings at a
        time."""
        ends = np.cumsum(np.frombuffer(self._distinct, dtype=np.int32), dtype=np.int64)
        size = int(ends[-1]) if len(ends) else 0
        chunks = [(begin, min(begin + _CHUNK, size)) for begin in range(0, size, _CHUNK)]
        totals = np.zeros(len(row_of), dtype=np.int64)
        for begin, end in chunks:
            totals += np.bincount(row_of[self._read_terms(begin, end)], minlength=len(row_of))
        starts = np.concatenate([[0], np.cumsum(totals)])
        np.save(self._folder / "posting_starts.npy", starts)
        products = open_memmap(self._folder / "posting_products.npy", mode="w+", dtype=np.int32, shape=(size,))
        counts = open_memmap(self._folder / "posting_counts.npy", mode="w+", dtype=np.uint16, shape=(size,))
        free = starts[:-1].copy()
        for begin, end in chunks:
            rows = row_of[self._read_terms(begin, end)]
            # Stable: the products of a term stay in ascending order.
            by_row = np.argsort(rows, kind="stable")
            rows = rows[by_row]
            # `rows` is sorted, so the difference counts the postings of the same term within this chunk.
            place = free[rows] + np.arange(len(rows)) - np.searchsorted(rows, rows)
            products[place] = np.searchsorted(ends, np.arange(begin, end), side="right")[by_row]
            counts[place] = _read(self._counts_file, np.uint16, begin, end)[by_row]
            free += np.bincount(rows, minlength=len(row_of))
        products.flush()
        counts.flush()

    def _read_terms(self, begin: int, end: int) -> np.ndarray:
        return _read(self._terms_file, np.int32, begin, end)


def _read(file, dtype, begin: int, end: int) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    file.seek(begin * size)
    return np.frombuffer(file.read((end - begin) * size), dtype=dtype)


class SearchIndex:
    """Search index of an `IndexWriter`, memory-mapped.

    Args:
        folder: where it was written.
        tie_order: int32[products], by which products of equal score are ordered.
    """

    def __init__(self, folder: Path, tie_order: np.ndarray):
        self._tie_order = tie_order
        self._terms = Records(folder, "terms")
        self._starts, self._products, self._counts, self._lengths = (
            mapped_array(folder / f"{name}.npy")
            for name in ("posting_starts", "posting_products", "posting_counts", "lengths")
        )
        statistics = json.loads((folder / "search.json").read_text())
        self._texts = statistics["texts"]
        lengths = np.array(_LENGTHS, dtype=np.float32)
        average = np.float32(statistics["average_length"])
        self._inverse_norm = np.float32(1) / (K1 * ((np.float32(1) - B) + B * lengths / average))

    def rank(self, query: str, limit: int) -> tuple[int, ...]:
        """Return the numbers of the products that match the query best, best first; none for a query without known
        terms."""
        scores = np.zeros(len(self._lengths))
        for term, repetitions in Counter(analyze(query)).items():
            self._add_scores(scores, term.encode("utf-8", "surrogatepass"), repetitions)
        # Lucene compares scores in single precision: scores that are equal there are ties.
        scores = scores.astype(np.float32)
        found = np.flatnonzero(scores)
        if len(found) > limit:
            # Keep all ties with the last place: `tie_order` decides among them.
            least = np.partition(scores[found], -limit)[-limit]
            found = found[scores[found] >= least]
        order = np.lexsort((self._tie_order[found], -scores[found]))[:limit]
        return tuple(found[order].tolist())

    def _add_scores(self, scores: np.ndarray, term: bytes, repetitions: int) -> None:
        row = bisect_left(self._terms, term)
        if row == len(self._terms) or self._terms[row] != term:
            return
        start, end = int(self._starts[row]), int(self._starts[row + 1])
        frequency = end - start
        inverse_frequency = math.log(1 + (self._texts - frequency + 0.5) / (frequency + 0.5))
        weight = np.float32(repetitions) * np.float32(inverse_frequency)
        products = self._products[start:end]
        relative = self._counts[start:end] * self._inverse_norm[self._lengths[products]]
        scores[products] += weight - weight / (np.float32(1) + relative)
