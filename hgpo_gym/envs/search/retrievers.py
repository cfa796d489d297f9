"""Retrievers of passages: BM25 on a list of them, or a server with the interface of Search-R1."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from hgpo_gym.envs.search.questions import read_lines
from hgpo_gym.extras import requires_extra
from hgpo_gym.files import content_key, make_whole
from hgpo_gym.network import goes_by_proxy
from hgpo_gym.source_code import files_digest

with requires_extra("search", "Search"):
    import bm25s
    import Stemmer

K1, B = 0.9, 0.4
"""Parameters of BM25, as Search-R1's sparse retriever has them."""
RETRIES = 3
TIMEOUT_S = 60.0


class Passage(NamedTuple):
    """A passage: its title and text."""

    title: str
    text: str


class Retriever(Protocol):
    """A search that answers the same query by the same passages every time."""

    key: str
    """Changes with the passages and with how they are found."""

    def search(self, query: str, count: int) -> tuple[Passage, ...]:
        """Return at most `count` passages, best first."""
        ...


class BM25Retriever:
    """BM25 on English words without their endings, by bm25s.

    Args:
        passages: in a fixed order; of two with the same score the earlier one comes first.
        index: a folder that keeps the index; made where it is missing.

    Raises:
        ValueError: no passage, or `index` was made of other passages.
    """

    def __init__(self, passages: Sequence[Passage], *, index: Path | None = None, content: str = ""):
        if not passages:
            raise ValueError("There is no passage to search: add some to the corpus.")
        self.passages = passages
        self.key = f"bm25s {bm25s.__version__} {content}"
        self._stemmer = Stemmer.Stemmer("english")
        if index is None:
            self._scorer = self._made()
        else:
            self._scorer = self._kept(index, content)
        self._answers = lru_cache(maxsize=100_000)(self._search)

    def search(self, query: str, count: int) -> tuple[Passage, ...]:
        return self._answers(query, count)

    def _search(self, query: str, count: int) -> tuple[Passage, ...]:
        [words] = self._words([query])
        known = [word for word in words if word in self._scorer.vocab_dict]
        if not known:
            return ()
        scores = self._scorer.get_scores(known)
        # bm25s.retrieve breaks ties by chance of position, and fills up with passages of score 0.
        found = np.flatnonzero(scores)
        if len(found) > count:
            found = found[scores[found] >= np.partition(scores[found], -count)[-count]]
        best = found[np.lexsort((found, -scores[found]))][:count]
        return tuple(self.passages[int(position)] for position in best)

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, return_ids=False, show_progress=False)

    def _made(self) -> bm25s.BM25:
        scorer = bm25s.BM25(k1=K1, b=B)
        scorer.index(self._words([f"{title}\n{text}" for title, text in self.passages]), show_progress=False)
        return scorer

    def _kept(self, index: Path, content: str) -> bm25s.BM25:
        made_of = index / "made_of.json"
        key = [content, bm25s.__version__, K1, B]

        def fill(folder: Path) -> None:
            self._made().save(folder, show_progress=False)
            (folder / made_of.name).write_text(json.dumps(key))

        if not index.exists():
            make_whole(index, fill)
        if not made_of.is_file() or json.loads(made_of.read_text()) != key:
            raise ValueError(
                f"index={index} was made of other passages, or is no index: remove it, or name another folder."
            )
        return bm25s.BM25.load(index, mmap=True)


class ServerRetriever:
    """A server with Search-R1's interface: POST {"queries": [...], "topk": 3, "return_scores": true}.

    Answers are kept by query, so that the same query has the same answer. Raises ConnectionError if the server does not
    answer after `RETRIES` tries: as an observation, it would spoil episodes silently.
    """

    def __init__(self, url: str):
        self.url, self.key = url, f"retriever {url}"
        proxies: dict[str, str] | None = None if goes_by_proxy(url) else {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        self._answers = lru_cache(maxsize=100_000)(self._search)

    def search(self, query: str, count: int) -> tuple[Passage, ...]:
        return self._answers(query, count)

    def _search(self, query: str, count: int) -> tuple[Passage, ...]:
        answer = self._post({"queries": [query], "topk": count, "return_scores": True})
        try:
            documents = [entry.get("document", entry) for entry in answer["result"][0]]
            return tuple(passage_of(document) for document in documents[:count])
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise ConnectionError(
                f"The retriever {self.url} answered {answer!r:.200}, which has no result[0][i].document.contents: "
                "start Search-R1's retrieval_server.py, or one with its interface."
            ) from error

    def _post(self, body: object) -> dict:
        request = urllib.request.Request(
            self.url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        for tries_left in reversed(range(RETRIES)):
            try:
                with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                    return json.loads(answer.read())
            except (OSError, ValueError) as error:  # HTTPError and URLError are OSErrors
                if not tries_left:
                    status = f"status {error.code}" if isinstance(error, urllib.error.HTTPError) else error
                    raise ConnectionError(
                        f"The retriever {self.url} does not answer after {RETRIES} tries ({status}): start it, or set "
                        "another retriever."
                    ) from error
                time.sleep(0.1)
        raise AssertionError("unreachable")


def passage_of(entry: object) -> Passage:
    """Return the passage of `{"contents": '"Title"\\ntext'}` or `{"title": ..., "text": ...}`.

    Raises:
        ValueError: it has neither.
    """
    fields = entry if isinstance(entry, dict) else {}
    if isinstance(contents := fields.get("contents"), str):
        title, _, text = contents.partition("\n")
        return Passage(title.strip().strip('"'), text.strip())
    if isinstance(fields.get("text"), str):
        return Passage(str(fields.get("title", "")), fields["text"])
    raise ValueError("needs `contents` (title in quotes, newline, text), or `title` and `text`.")


def open_corpus(corpus: Path, index: Path | None) -> BM25Retriever:
    """Return the retriever of a file of passages, one JSON object a line, shared by all environments of the process.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that is no passage, or an index of other passages.
    """
    if not corpus.is_file():
        raise FileNotFoundError(f"corpus={corpus} not found: give a file with one JSON object a line.")
    status = corpus.stat()
    return _open_corpus(corpus, index, (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=4)
def _open_corpus(corpus: Path, index: Path | None, _version: tuple[int, int]) -> BM25Retriever:
    passages = []
    for number, entry in read_lines(corpus):
        try:
            passages.append(passage_of(entry))
        except ValueError as error:
            raise ValueError(f"{corpus}, line {number} {error}") from error
    return BM25Retriever(passages, index=index, content=files_digest([corpus]))


@lru_cache(maxsize=4)
def ask_server(url: str) -> ServerRetriever:
    """Return the retriever of a server, whose answers all environments of the process share."""
    return ServerRetriever(url)


@lru_cache(maxsize=4)
def search_passages(passages: tuple[Passage, ...]) -> BM25Retriever:
    """Return the retriever of passages in memory, shared by all environments of the process."""
    return BM25Retriever(passages, content=content_key(passages))
