"""SearchEnv: answer a question by searching, in the manner of Search-R1 (Jin et al., 2025, arXiv:2503.09516)."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, starmap
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.search.questions import Question, read_questions
from hgpo_gym.envs.search.retrievers import Passage, Retriever, ask_server, open_corpus, search_passages
from hgpo_gym.envs.search.scoring import exact_match, token_f1
from hgpo_gym.envs.search.world import make_questions, make_world
from hgpo_gym.envs.splits import SUCCESS_REWARD, Split, check_number_of_tasks, hashed, in_split
from hgpo_gym.files import expand_home
from hgpo_gym.option_checks import AtLeastOne, Range
from hgpo_gym.suggest import option

Reward = Literal["success", "f1"]
Queries = Literal["free", "suggested"]
HOPS = (1, 2, 3)
SEARCH, ANSWER = "search", "answer"
LONGEST_QUERY = 1000
"""Characters of a query."""
MOST_SUGGESTIONS = 100
"""Names that `queries=suggested` offers, the newest."""
HOW_TO = "Search by search[query], answer by answer[text]."

_BRACKETS = re.compile(r"\s*(search|answer)\s*\[(.*)\]\s*", re.IGNORECASE | re.DOTALL)
_TAGS = re.compile(r"<(/?)(search|answer)>", re.IGNORECASE)
_MENTIONS = re.compile(r"[^\W\d_a-z][\w'-]*(?: [^\W\d_a-z][\w'-]*)*|\d+")
"""Words in capitals, side by side, and numbers."""
_WORDS = re.compile(r"\b[^\W\d_A-Z]+\b")
"""Words in small letters."""
WORDS_BEFORE, WORDS_AFTER = 4, 2
"""Words around a name that describe it."""
_FIRST_WORDS = frozenset(
    [
        "A",
        "An",
        "The",
        "It",
        "Its",
        "In",
        "At",
        "On",
        "Of",
        "By",
        "What",
        "Which",
        "Who",
        "When",
        "Where",
        "How",
        "Is",
        "Was",
        "Today",
        "He",
        "She",
        "They",
    ]
)
"""Words that are in capitals where a sentence begins."""


class SearchState(NamedTuple):
    """State of an episode: the passages read, the queries so far, the latest observation and passages, and the names
    read."""

    read: tuple[Passage, ...] = ()
    queries: tuple[str, ...] = ()
    observation: str = ""
    latest: tuple[Passage, ...] = ()
    names: tuple[str, ...] = ()
    answer: str | None = None


class SearchEnv(TextEnv):
    """`hgpo_gym/Search-v0`: search for passages, then answer; the answer ends the episode.

    Without `data` a made-up world is searched, whose questions cannot be answered without it.

    Args:
        split: `test` (about a third, by a hash: of the entities in the made-up world, else of the task id), `train`
            (the others) or `all`.
        data: a file with a question a line, see `questions.read_questions`; it needs `corpus` or `retriever`.
        corpus: a file with a passage a line: `contents` (the title in quotes, a newline, the text), or `title`, `text`.
        index: a folder for the index of `corpus`; made where it is missing, then read as it is needed.
        retriever: the URL of a server with Search-R1's interface, such as `http://127.0.0.1:8000/retrieve`.
        hops: of the made-up world, how many relations a question chains: some of 1, 2, 3.
        questions: of the made-up world, both splits together; fewer if it has no more.
        passages: of the made-up world, 100 to 100,000.
        world_seed: draws the made-up world and its questions.
        topk: passages that a search shows.
        passage_words: words of a passage that are shown.
        queries: `free`, nothing is listed; or `suggested`: `search[...]` of each name in the question or read,
            `answer[...]` of each name or number read, and nothing else is understood.
        reward: `success`, 10 for an exact match, else 0; or `f1`, 10 times the F1 of the answer's tokens.
        expert: put into `info["expert_action"]` a search for the next title, then the answer; empty where no titles are
            known.
        milestones: put into `info["milestone"]` whether the action found a supporting passage for the first time, or
            the answer.
        describe_actions: with `queries="suggested"`, put into `info["action_descriptions"]` where the name of each
            action was last read: the passage's place in the latest search, and the words around the name.
        render_mode: `ansi` or None.

    Raises:
        FileNotFoundError: a file that does not exist.
        ValueError: an option out of range, a line of a file that cannot be read, or options that do not fit together.
    """

    max_text_length = 16_384

    def __init__(
        self,
        *,
        split: Split = "train",
        data: str | Path | None = None,
        corpus: str | Path | None = None,
        index: str | Path | None = None,
        retriever: str | None = None,
        hops: Sequence[int] = HOPS,
        questions: AtLeastOne = 600,
        passages: Annotated[int, Range(100, 100_000)] = 1_000,
        world_seed: int = 0,
        topk: AtLeastOne = 3,
        passage_words: AtLeastOne = 120,
        queries: Queries = "free",
        reward: Reward = "success",
        expert: bool = False,
        milestones: bool = False,
        describe_actions: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        if not hops or not set(hops) <= set(HOPS):
            raise ValueError(f"hops={list(hops)}: choose some of {list(HOPS)}.")
        check_number_of_tasks(f"questions={questions}", questions)
        self.split = split
        self._topk, self._words = topk, passage_words
        self._suggests, self._by_f1 = queries == "suggested", reward == "f1"
        self._expert, self._milestones, self._describes = expert, milestones, describe_actions
        self._retriever: Retriever
        if data is None:
            _refuse_without_data(corpus=corpus, index=index, retriever=retriever)
            self._questions = _generated(split, tuple(dict.fromkeys(hops)), questions, passages, world_seed)
            self._retriever = search_passages(make_world(passages, world_seed).passages)
        else:
            by_task = read_questions(expand_home(data, option("data")))
            self._questions = {task: question for task, question in by_task.items() if in_split(split, hashed(task))}
            self._retriever = _open(corpus, index, retriever)
        self.texts_key = self._retriever.key
        self.task_ids = tuple(sorted(self._questions))

    def task_type(self, task_id: str) -> str:
        return self._questions[task_id].kind

    def begin_episode(self, task_id: str) -> Turn:
        self._question = self._questions[task_id]
        text = self._question.text
        self._state = SearchState(observation=text, names=_names(text))
        return self._turn()

    def take_action(self, action: str) -> Turn:
        # Lone surrogates cannot be encoded, which stemmers and servers need.
        action = action.encode("utf-8", "replace").decode()
        if self._suggests and action not in self._admissible():
            return self._turn(refusal="That is not one of the listed actions. ")
        verb, text = read_action(action)
        if not text:
            return self._turn(refusal=f"{HOW_TO} ")
        if verb == ANSWER:
            return self._answered(text)
        if len(text) > LONGEST_QUERY:
            return self._turn(refusal=f"A query has at most {LONGEST_QUERY:,} characters. ")
        return self._searched(text)

    def save_state(self) -> tuple[Question, SearchState]:
        return self._question, self._state

    def load_state(self, state: tuple[Question, SearchState]) -> None:
        self._question, self._state = state

    def _searched(self, query: str) -> Turn:
        state, found = self._state, self._retriever.search(query, self._topk)
        shown = [(title, " ".join(text.split()[: self._words])) for title, text in found]
        docs = (f"Doc {number}(Title: {title}) {text}" for number, (title, text) in enumerate(shown, start=1))
        names = _names(*(text for passage in shown for text in passage)) if self._suggests else ()
        supports = self._supports()
        self._state = SearchState(
            read=(*state.read, *(passage for passage in found if passage not in state.read)),
            queries=(*state.queries, query),
            observation="\n".join(docs)[: self.max_text_length] or "No passage has any of these words.",
            latest=tuple(starmap(Passage, shown)),
            names=tuple(dict.fromkeys((*state.names, *names))),
        )
        retrieved = tuple(sorted(passage.title for passage in found))
        return self._turn(milestone=self._supports() > supports, retrieved=retrieved)

    def _answered(self, answer: str) -> Turn:
        golden = self._question.golden
        won, f1 = exact_match(answer, golden), token_f1(answer, golden)
        self._state = self._state._replace(observation="Your answer is taken.", answer=answer)
        reward = SUCCESS_REWARD * (f1 if self._by_f1 else won)
        return self._turn(reward=reward, won=won, milestone=won, exact_match=won, f1=f1)

    def _turn(
        self, refusal: str = "", reward: float = 0.0, won: bool = False, milestone: bool = False, **extras: Any
    ) -> Turn:
        if self._expert:
            extras["expert_action"] = self._expert_action()
        if self._milestones:
            extras["milestone"] = milestone
        admissible = self._admissible()
        if self._describes:
            places = dict.fromkeys(_names(self._question.text), "question") | _places(self._state.latest)
            extras["action_descriptions"] = tuple(
                places.get(read_action(action)[1], "earlier") for action in admissible
            )
        return Turn(
            observation=(refusal + self._state.observation)[: self.max_text_length],
            task=f"{self._question.text} {HOW_TO}",
            admissible_actions=admissible,
            reward=reward,
            terminated=self._state.answer is not None,
            won=won,
            action_valid=not refusal,
            extras=extras,
        )

    def _admissible(self) -> tuple[str, ...]:
        if not self._suggests or self._state.answer is not None:
            return ()
        names = self._state.names[-MOST_SUGGESTIONS:]
        in_question = set(_names(self._question.text))
        searches = (f"search[{name}]" for name in names if not name.isdigit())
        return (*searches, *(f"answer[{name}]" for name in names if name not in in_question))

    def _supports(self) -> int:
        """Return how many of the supporting passages have been read."""
        return len({passage.title for passage in self._state.read}.intersection(self._question.titles))

    def _expert_action(self) -> str:
        state, titles = self._state, self._question.titles
        if state.answer is not None or not titles:
            return ""
        known = {passage.title for passage in state.read} | set(state.queries)
        return next(
            (f"search[{title}]" for title in titles if title not in known), f"answer[{self._question.golden[0]}]"
        )


def read_action(text: str) -> tuple[str, str]:
    """Return the verb and what it is about: of the last `<search>` or `<answer>` with its end, or of `search[...]`.

    Both are empty if there is neither. Takes time in proportion to the text, whatever it is.
    """
    tags = list(_TAGS.finditer(text))
    for opening, closing in reversed(list(pairwise(tags))):
        verb = opening[2].lower()
        if closing[1] and not opening[1] and closing[2].lower() == verb:
            return verb, text[opening.end() : closing.start()].strip()
    match = _BRACKETS.fullmatch(text)
    return (match[1].lower(), match[2].strip()) if match else ("", "")


def _names(*texts: str) -> tuple[str, ...]:
    """Return the names and numbers in texts, each once."""
    names = (_without_first_words(mention) for text in texts for mention in _MENTIONS.findall(text))
    return tuple(dict.fromkeys(filter(None, names)))


def _without_first_words(mention: str) -> str:
    words = mention.split()
    while words and words[0] in _FIRST_WORDS:
        del words[0]
    return " ".join(words)


@lru_cache(maxsize=1 << 10)
def _places(passages: tuple[Passage, ...]) -> dict[str, str]:
    """Return for each name in passages the first that mentions it, and the words before and after the name there.

    An example is `doc 1: was born in _ in`. Other names are left out.
    """
    places: dict[str, str] = {}
    for number, (title, text) in enumerate(passages, start=1):
        places.setdefault(title, f"doc {number}: title")
        for sentence in text.split(". "):
            for mention in _MENTIONS.finditer(sentence):
                before, after = _WORDS.findall(sentence[: mention.start()]), _WORDS.findall(sentence[mention.end() :])
                excerpt = " ".join((*before[-WORDS_BEFORE:], "_", *after[:WORDS_AFTER]))
                places.setdefault(_without_first_words(mention[0]), f"doc {number}: {excerpt}")
    return places


@lru_cache(maxsize=16)
def _generated(split: Split, hops: tuple[int, ...], questions: int, passages: int, seed: int) -> dict[str, Question]:
    """Return questions of the made-up world, shared by all environments of the process."""
    return make_questions(make_world(passages, seed), split, hops, questions, seed)


def _refuse_without_data(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}={value} needs questions of its own: set {option('data', 'FILE')} too.")


def _open(corpus: str | Path | None, index: str | Path | None, retriever: str | None) -> Retriever:
    if (corpus is None) == (retriever is None):
        raise ValueError("data=... needs what is searched: corpus=FILE or retriever=URL, one of them.")
    if retriever is not None:
        return ask_server(retriever)
    assert corpus is not None
    place = None if index is None else expand_home(index, option("index"))
    return open_corpus(expand_home(corpus, option("corpus")), place)
