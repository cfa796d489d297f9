"""Search: scores, the made-up world, BM25 and its ties, files, a server, hostile actions."""

import json
import math
import re
import threading
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

pytest.importorskip("bm25s")
from hgpo_gym.envs.search.env import SearchEnv, read_action
from hgpo_gym.envs.search.retrievers import K1, B, BM25Retriever, Passage, search_passages
from hgpo_gym.envs.search.scoring import exact_match, token_f1
from hgpo_gym.envs.search.world import make_questions, make_world

WORLD = make_world(1_000, 0)
QUESTIONS = {split: make_questions(WORLD, split, (1, 2, 3), 600, 0) for split in ("train", "test")}


@pytest.mark.parametrize(
    ("answer", "golden", "exact", "f1"),
    [
        ("The Beatles!", ["beatles"], True, 1.0),
        ("an  apple\tpie", ["Apple pie"], True, 1.0),
        ("U.S.A.", ["usa"], True, 1.0),
        ("theatre", ["atre"], False, 0.0),
        ("John Smith", ["Smith", "John Adams Smith"], False, 0.8),
        ("1,000", ["1000"], True, 1.0),
        ("", ["a"], True, 0.0),  # both are empty once articles are out, as in qa_em.py
        ("yes yes", ["yes"], False, 2 / 3),
    ],
)
def test_scores_are_those_of_search_r1(answer, golden, exact, f1):
    assert exact_match(answer, golden) == exact
    assert token_f1(answer, golden) == pytest.approx(f1)


def test_every_hop_needs_its_search():
    """A search for a name finds its passage; the question alone finds the last passage of one hop only."""
    retriever = search_passages(WORLD.passages)
    for questions in QUESTIONS.values():
        by_question = Counter()
        for question in questions.values():
            for title in question.titles:
                assert title in {passage.title for passage in retriever.search(title, 3)}
            found = {passage.title for passage in retriever.search(question.text, 3)}
            by_question[question.kind] += question.titles[-1] in found
        kinds = Counter(question.kind for question in questions.values())
        assert by_question["2 hops"] <= 0.03 * kinds["2 hops"]
        assert by_question["3 hops"] == 0


def test_answers_cannot_be_guessed():
    """A reader who knows the most frequent answer to each last relation, by the training questions."""
    frequent = defaultdict(Counter)
    for task_id, question in QUESTIONS["train"].items():
        frequent[task_id.split("-")[-1]][question.golden[0]] += 1
    for split, questions in QUESTIONS.items():
        guessed = [
            frequent[task_id.split("-")[-1]].most_common(1)[0][0] in question.golden
            for task_id, question in questions.items()
        ]
        assert np.mean(guessed) < 0.05 + 0.05 * (split == "train")


def test_no_test_question_shares_an_entity_with_training():
    entities = {
        split: {title for question in questions.values() for title in (*question.titles, *question.golden)}
        & WORLD.entities.keys()
        for split, questions in QUESTIONS.items()
    }
    assert not entities["train"] & entities["test"]
    assert Counter(question.kind for question in QUESTIONS["test"].values()).keys() == {"1 hop", "2 hops", "3 hops"}


@pytest.mark.parametrize("queries", ["free", "suggested"])
def test_the_expert_answers_every_question_in_four_turns(queries):
    env = SearchEnv(split="test", queries=queries, expert=True, milestones=True)
    for task_id in env.task_ids[::5]:
        _, info = env.reset(options={"task_id": task_id})
        hops, milestones = int(info["task_type"][0]), 0
        for _ in range(hops + 1):
            assert queries == "free" or info["expert_action"] in info["admissible_actions"]
            *_, terminated, _, info = env.step(info["expert_action"])
            milestones += info["milestone"]
        assert (terminated, info["won"], info["exact_match"], info["f1"], milestones) == (
            True, True, True, 1.0, hops + 1,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (" SEARCH [ Orford ] ", ("search", "Orford")),
        ("answer[a [b] c]", ("answer", "a [b] c")),
        ("<search>one</search> then <Answer> two </answer>", ("answer", "two")),
        ("<search><answer>x</search></answer>", ("", "")),
        ("<search>" * 20_000, ("", "")),
        ("search[" + "] " * 400_000 + "x", ("", "")),
        ("search[]", ("search", "")),
        ("find[x]", ("", "")),
        ("search[x] answer[y]", ("search", "x] answer[y")),
    ],
)
def test_actions_are_read_as_brackets_or_tags(text, action):
    assert read_action(text) == action


def test_an_episode_by_hand(tmp_path):
    corpus, data = files(tmp_path)
    env = SearchEnv(data=data, corpus=corpus, split="all", topk=2, passage_words=3, expert=True)
    assert len(env.task_ids) == 2
    observation, info = env.reset(options={"task_id": "q1"})
    assert (observation, info["task_type"], info["admissible_actions"]) == ("Who runs Orford?", "mine", ())
    assert info["expert_action"] == "search[Orford]"
    observation, reward, terminated, _, info = env.step("search[orford towns]")
    assert observation == "Doc 1(Title: Orford) Orford is a\nDoc 2(Title: Elm) Elm is a"
    assert (reward, terminated, info["action_valid"], info["retrieved"]) == (0.0, False, True, ("Elm", "Orford"))
    refused, *_, info = env.step("look around")
    assert refused == f"Search by search[query], answer by answer[text]. {observation}"
    assert not info["action_valid"]
    assert env.step("search[zzz]")[0] == "No passage has any of these words."
    assert info["expert_action"] == "answer[Ann Lee]"
    observation, reward, terminated, _, info = env.step("<answer>the ann lee.</answer>")
    assert (observation, reward, terminated, info["won"]) == ("Your answer is taken.", 10.0, True, True)


def files(folder):
    """A corpus in both forms, and questions in both forms."""
    corpus, data = folder / "corpus.jsonl", folder / "questions.jsonl"
    passages = [
        {"id": "0", "contents": '"Orford"\nOrford is a town. Ann Lee runs it.'},
        {"title": "Elm", "text": "Elm is a town too."},
        {"title": "Salt", "text": "Salt is mined."},
    ]
    questions = [
        {
            "id": "q1",
            "question": "Who runs Orford?",
            "golden_answers": ["Ann Lee"],
            "supporting_facts": [["Orford", 0]],
        },
        {"question": "What is mined?", "answer": "salt"},
    ]
    questions[0]["data_source"] = "mine"
    corpus.write_text("\n".join(map(json.dumps, passages)) + "\n\n")
    data.write_text("\n".join(map(json.dumps, questions)))
    return corpus, data


def test_suggested_actions_say_where_their_name_was_read():
    env = SearchEnv(queries="suggested", describe_actions=True)
    _, info = env.reset(options={"task_id": "Barelholm_Doralnick-employer"})
    assert info["action_descriptions"] == ("question",)
    *_, info = env.step("search[Barelholm Doralnick]")
    described = dict(zip(info["admissible_actions"], info["action_descriptions"], strict=True))
    assert described["answer[Pelellund Brothers]"] == "doc 1: _ employs the"
    assert described["search[Quinodor]"] == described["answer[Quinodor]"] == "doc 1: comes from _ and was"
    assert sum(text.endswith("title") for text in described.values()) == 5  # of searches 3, of answers 2
    *_, info = env.step("search[Quinodor]")
    described = dict(zip(info["admissible_actions"], info["action_descriptions"], strict=True))
    assert described["answer[Pelellund Brothers]"] == "earlier"


def test_f1_pays_a_part(tmp_path):
    corpus, data = files(tmp_path)
    env = SearchEnv(data=data, corpus=corpus, split="all", reward="f1")
    env.reset(options={"task_id": "q1"})
    _, reward, terminated, _, info = env.step("answer[Ann]")
    assert (reward, terminated, info["won"]) == (pytest.approx(20 / 3), True, False)


def test_bm25_is_the_formula_and_breaks_ties_by_position():
    """Robertson's BM25 with Lucene's idf, on passages of plain words; equal passages come in their order."""
    generator = np.random.default_rng(0)
    words = [f"w{number}x" for number in range(30)]
    texts = [" ".join(generator.choice(words, size=generator.integers(3, 12))) for _ in range(100)]
    texts[50] = texts[10]
    retriever = BM25Retriever([Passage("", text) for text in texts])
    documents = [Counter(text.split()) for text in texts]
    mean = sum(document.total() for document in documents) / len(documents)

    def score(document, query):
        total = 0.0
        for word in query:
            n = sum(word in other for other in documents)
            tf = document[word] / (document[word] + K1 * (1 - B + B * document.total() / mean))
            total += math.log(1 + (len(documents) - n + 0.5) / (n + 0.5)) * tf
        return total

    for query in (["w1x"], ["w2x", "w7x"], texts[10].split()):
        scores = [score(document, query) for document in documents]
        expected = sorted((i for i in range(100) if scores[i] > 0), key=lambda i: (-round(scores[i], 5), i))[:5]
        assert [texts[i] for i in expected] == [passage.text for passage in retriever.search(" ".join(query), 5)]
        assert len(retriever.search("w1x", 500)) == sum("w1x" in document for document in documents)


def test_an_index_is_kept_and_refused_for_other_passages(tmp_path):
    corpus, data = files(tmp_path)
    options = {"data": data, "corpus": corpus, "split": "all", "index": tmp_path / "index"}
    first = SearchEnv(**options)
    assert SearchEnv(**options)._retriever.search("town", 3) == first._retriever.search("town", 3)
    corpus.write_text(corpus.read_text().replace("Elm", "Oak"))
    with pytest.raises(ValueError, match=r"index=.*was made of other passages.*remove it"):
        SearchEnv(**options)


class SearchR1(BaseHTTPRequestHandler):
    """Search-R1's interface; the server's `failures` come first."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        if self.server.failures:
            self.server.failures -= 1
            self.send_error(503)
            return
        documents = [{"document": {"contents": f'"T{n}"\n{body["queries"][0]} {n}'}, "score": 1.0} for n in range(9)]
        answer = json.dumps({"result": [documents[: body["topk"]]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), SearchR1)
    server.bodies, server.failures = [], 0
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_is_asked_as_search_r1_does_and_once_a_query(server, tmp_path):
    _, data = files(tmp_path)
    url = f"http://127.0.0.1:{server.server_port}/retrieve"
    env = SearchEnv(data=data, retriever=url, split="all", topk=2)
    assert env.texts_key == f"retriever {url}"
    env.reset(options={"task_id": "q1"})
    server.failures = 2
    for _ in range(2):
        assert env.step("search[ä]")[0] == "Doc 1(Title: T0) ä 0\nDoc 2(Title: T1) ä 1"
    assert server.bodies == [{"queries": ["ä"], "topk": 2, "return_scores": True}] * 3
    server.failures = 3
    with pytest.raises(ConnectionError, match=rf"{re.escape(url)} does not answer after 3 tries \(status 503\)"):
        env.step("search[other]")


def test_20_000_hostile_actions_change_nothing_that_a_snapshot_does_not_restore():
    env = SearchEnv(split="test", passages=200, questions=60)
    generator = np.random.default_rng(0)
    env.reset(seed=0)
    snapshot = env.snapshot()
    parts = [
        "search[", "answer[", "]", "<search>", "</search>", "</answer>", "\ud800", "寿司", "\x00", " ", "Bar", "a" * 99,
    ]  # fmt: skip
    hostile = [
        "x" * 2**20, "search[" + "y " * 2**19 + "]", "<search>" * 2**15, "\udfff" * 2**16, "answer[" + "\ud800" * 999,
    ]  # fmt: skip
    drawn = generator.integers(len(parts), size=(20_000, 4)).tolist()
    for number in range(20_000):
        action = hostile[number // 4_000] if number % 4_000 == 0 else "".join(parts[i] for i in drawn[number])
        if env.step(action)[2]:
            env.restore(snapshot)
    assert env.restore(snapshot)[0] == snapshot.turn.observation
    assert env.step("search[Bar]")[4]["action_valid"]


def test_damaged_lines_are_named(tmp_path):
    corpus, data = files(tmp_path)
    with pytest.raises(ValueError, match=r"data=\.\.\. needs what is searched"):
        SearchEnv(data=data)
    for file, line, message in (
        (data, '{"question": "Q"}', "line 3 needs `question` and `golden_answers`"),
        (corpus, '{"title": "T"}', "line 6 needs `contents`"),
        (corpus, "{", "line 6 is no JSON"),
    ):
        before = file.read_text()
        file.write_text(f"{before}\n{line}")
        with pytest.raises(ValueError, match=message):
            SearchEnv(data=data, corpus=corpus, split="all")
        file.write_text(before)
