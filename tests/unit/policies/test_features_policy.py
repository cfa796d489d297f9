"""The features policy: the same features everywhere, a softmax over scores, and the promises of the trainer."""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.base import StepContext
from hgpo_gym.policies.features.episode import EARLIER, LAST, NOTHING, Episode, Episodes, role_of
from hgpo_gym.policies.features.features import Extractor
from hgpo_gym.policies.features.network import Network
from hgpo_gym.policies.features.places import Places, choices_of, standing_of
from hgpo_gym.policies.features.policy import FeaturesPolicy
from hgpo_gym.policies.features.words import Argument, read_action, read_task
from hgpo_gym.policies.likelihood import score
from hgpo_gym.runs.directory import read_config, read_metrics
from tests.support import small_runs

TASK = "put a clean cup on the shelf."
ROOM = "You are in a room. You see a shelf 1, a sink 1, a table 2 and a table 1."
GO = tuple(f"go to {place}" for place in ("shelf 1", "sink 1", "table 1", "table 2"))
SHORT = ["env.sections=2", "env.max_episode_steps=12", "evaluation.decoding_seeds=20"]
SMALL = ["model=features", "model.novelty=0", "model.relevance=0", *SHORT]
train = partial(small_runs.train, base=SMALL)


def step_contexts(*steps, task=TASK):
    """The moments of an episode, given (observation, actions, action that led there, maybe descriptions)."""
    made = []
    for observation, actions, action, *described in steps:
        made.append(StepContext(task, observation, actions, *(described or [()]), made[-1] if made else None, action))
    return made


CLEANING = step_contexts(
    (ROOM, GO, ""),
    (
        "On the table 1, you see a cup 2 and a cup 1.",
        (*GO, "take cup 1 from table 1", "take cup 2 from table 1"),
        GO[2],
    ),
    ("You pick up the cup 2 from the table 1.", (*GO, "put cup 2 on table 1"), "take cup 2 from table 1"),
    ("You arrive at the sink 1.", (*GO, "clean cup 2 with sink 1", "put cup 2 on sink 1"), "go to sink 1"),
)


PAGES = (
    ("Search.", ("search[small red mug]", "search[mug]"), ""),
    (
        "Page 1. b01 Red mug, small. $9.99. b02 Blue mug. $14.00 to $20.50",
        ("click[back to search]", "click[b01]", "click[b02]"),
        "search[small red mug]",
        ("", "Red mug, small. $9.99", "Blue mug. $14.00 to $20.50"),
    ),
    (
        "Red mug, small. Price: $9.99. size: small, 12 oz. colour: red",
        ("click[< prev]", "click[description]", "click[buy now]", "click[small]", "click[12 oz]", "click[red]"),
        "click[b01]",
        ("", "", "", "size small", "size 12 oz", "colour red"),
    ),
    (
        "You have clicked red.",
        ("click[< prev]", "click[buy now]", "click[small]", "click[12 oz]", "click[red]"),
        "click[red]",
        ("", "", "size small", "size 12 oz", "colour red"),
    ),
)
"""Descriptions, prices beside a limit, options of a product."""
WANTED = "Find me a red mug, size small, and price lower than 12.00 dollars"
SHOPPING = step_contexts(*PAGES, task=WANTED)


def ask(step_context, seed=0):
    return Request(
        "", step_context.actions, seed=(seed,), task=step_context.task, choices=step_context.actions,
        step_context=step_context,
    )  # fmt: skip


@pytest.fixture
def policy():
    """One whose scores differ."""
    network = Network(wide=1 << 12, deep=1 << 10, hidden_size=4, leaning=(-0.3, 0.2), seed=0)
    network.weights.data.normal_(std=0.05, generator=torch.Generator().manual_seed(1))
    network.out.data.normal_(std=0.3, generator=torch.Generator().manual_seed(2))
    return FeaturesPolicy(network)


def test_actions_are_a_frame_with_arguments():
    assert read_action("take mug 1 from desk 2") == (
        "take _ from _",
        (Argument("mug 1", ("mug",)), Argument("desk 2", ("desk",))),
    )
    assert read_action("click[4.5 oz]") == ("click _", (Argument("4.5 oz", ("oz",)),))
    assert read_action("look") == ("look", ())
    assert read_action("open Red Door!") == ("open _", (Argument("red door", ("red", "door")),))
    assert read_action("") == ("", ())
    assert read_task("buy a pen, price lower than 20.00 dollars").amount == 20.0


def test_an_episode_remembers_where_what_the_task_speaks_of_was_found():
    episode = Episode(CLEANING[0])
    assert episode.found["shelf 1"] == frozenset()
    for step_context in CLEANING[1:]:
        episode.advance(step_context)
    assert episode.found["cup 1"] == episode.found["cup 2"] == {"table 1"}
    assert set(episode.holds["table 1"]) == {"cup 1", "cup 2"}
    assert episode.status["cup 2"] == "take _ from _ - e -#0"
    assert episode.thing("table 1")[1].split(" ", 1)[1].endswith("e:take _ from _ - e -#0")
    assert (episode.times["go to sink 1"], episode.last_time["go to table 1"], episode.step) == (1, 1, 3)


def test_the_memory_at_a_moment_does_not_depend_on_what_was_asked_before():
    """Branches of an episode are asked for in any order."""
    other = StepContext(TASK, "You arrive at the shelf 1.", GO, (), CLEANING[2], "go to shelf 1")
    in_order, extract = Episodes(), Extractor(1 << 12, 1 << 10)
    for step_context in CLEANING:
        in_order.at(step_context)
    asked = [CLEANING[3], other, CLEANING[1], CLEANING[3], other]
    fresh = [Extractor(1 << 12, 1 << 10)([ask(step_context)])[0] for step_context in asked]
    for step_context, expected in zip(asked, fresh, strict=True):
        (features,) = extract([ask(step_context)])
        for name in features._fields:
            np.testing.assert_array_equal(getattr(features, name), getattr(expected, name))
    assert in_order.at(CLEANING[3]).status == Episodes().at(CLEANING[3]).status


def test_actions_of_which_nothing_is_known_apart_share_a_row():
    (first, second) = Extractor(1 << 12, 1 << 10)([ask(CLEANING[0]), ask(CLEANING[1])])
    assert first.row.tolist() == [0, 1, 2, 2]
    assert second.row[2] != second.row[3], "one table was visited"
    assert second.row[4] == second.row[5], "both cups are new"


def test_a_moment_without_a_word_has_features_too():
    (features,) = Extractor(1 << 12, 1 << 10)([ask(StepContext("Find it.", "...", ("go left", "go right")))])
    assert len(features.row) == 2


GOLDEN = "8ee3b6d76a114994 86ddaccd46832bb4"


def digest():
    """Return a digest of each episode's features."""

    def of(episode):
        features = Extractor(1 << 18, 1 << 15)([ask(step_context) for step_context in episode])
        parts = [getattr(one, name).astype("<i8").tobytes() for one in features for name in one._fields]
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    return f"{of(CLEANING)} {of(SHOPPING)}"


def test_features_are_the_same_on_every_machine():
    assert digest() == GOLDEN


def test_descriptions_and_amounts_are_among_the_features():
    """The features that the golden value covers."""

    def features(step_context):
        (found,) = Extractor(1 << 18, 1 << 15)([ask(step_context)])
        return [part.tolist() for part in found]

    cheaper = step_contexts(*PAGES, task=WANTED.replace("12.00", "5.00"))
    for page in SHOPPING[1:]:
        assert features(page) != features(replace(page, descriptions=()))
    assert features(SHOPPING[1]) != features(cheaper[1])


def test_words_of_descriptions_are_features_where_they_are_asked_for(tmp_path):
    """Two actions that differ by a description that has no word of the task."""
    choices, descriptions = ("go left", "go right"), ("red door", "blue wall")
    request = ask(StepContext("Find the way.", "...", choices, descriptions))
    policy = FeaturesPolicy(Network(1 << 18, 1 << 10, 4, (0.0, 0.0), seed=0, description_words=2))
    policy.save(tmp_path)
    for words, kept in ((0, Extractor(1 << 18, 1 << 10)), (2, FeaturesPolicy.load(tmp_path).featurize)):
        swapped = replace(request, step_context=replace(request.step_context, descriptions=("red wall", "blue door")))
        first, second = ({*kept([one])[0].wide.ravel().tolist()} for one in (request, swapped))
        assert (first != second) == (words > 0)


def test_what_was_never_trained_is_uniform():
    policy = FeaturesPolicy(Network(1 << 12, 1 << 10, 4, (0.0, 0.0), seed=0))
    responses = policy.generate([ask(CLEANING[0], seed) for seed in range(2000)], Sampling())
    assert {float(response.tokens.logprobs[0]) for response in responses} == {float(np.float32(-np.log(4)))}
    for action in GO:
        assert abs(np.mean([response.text == action for response in responses]) - 1 / 4) < 4 * np.sqrt(3 / 16 / 2000)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_records_hold_the_probabilities_that_responses_were_drawn_with(policy, temperature):
    step_context = CLEANING[3]
    responses = policy.generate([ask(step_context, seed) for seed in range(4000)], Sampling(temperature=temperature))
    records = {response.text: response.tokens for response in responses}
    assert set(records) == set(step_context.actions)
    probabilities = {text: np.exp(float(record.logprobs[0])) for text, record in records.items()}
    assert sum(probabilities.values()) == pytest.approx(1, rel=1e-5)
    for text, probability in probabilities.items():
        frequency = np.mean([response.text == text for response in responses])
        assert abs(frequency - probability) < 4 * np.sqrt(probability * (1 - probability) / 4000)
    scored = score(policy, list(records.values()), temperature=temperature, max_batch_tokens=8)
    np.testing.assert_allclose(np.exp(np.concatenate(scored)), list(probabilities.values()), rtol=1e-5)
    entropy = policy.likelihood([records[GO[0]]], temperature=temperature).entropy.item()
    assert entropy == pytest.approx(-sum(p * np.log(p) for p in probabilities.values()), rel=1e-4)


def test_responses_depend_on_their_seed_and_not_on_what_they_are_batched_with(policy):
    asked = [ask(step_context, seed) for seed in range(8) for step_context in CLEANING]
    together = policy.generate(asked, Sampling())
    apart = [policy.generate([request], Sampling())[0] for request in asked]
    assert [response.text for response in together] == [response.text for response in apart]
    assert len({response.text for response in together}) > 5


def test_responses_have_the_form_that_the_prompt_asks_for(policy):
    request = ask(CLEANING[0])
    tagged = replace(request, allowed_responses=tuple(f"<action>{action}</action>" for action in request.choices))
    (plain,), (response,) = (policy.generate([one], Sampling()) for one in (request, tagged))
    assert response.text == f"<action>{plain.text}</action>"
    np.testing.assert_array_equal(response.tokens.logprobs, plain.tokens.logprobs)


def test_a_features_policy_is_saved_and_loaded(policy, tmp_path):
    records = [
        response.tokens for response in policy.generate([ask(step_context) for step_context in CLEANING], Sampling())
    ]
    policy.save(tmp_path / "features")
    loaded = FeaturesPolicy.load(tmp_path / "features")
    before, after = (one.likelihood(records, temperature=1.0).logprobs for one in (policy, loaded))
    assert torch.equal(before, after)
    with pytest.raises(FileNotFoundError, match=r"No features policy in .*nowhere: expected features\.safetensors"):
        FeaturesPolicy.load(tmp_path / "nowhere")


def test_a_policy_needs_actions_to_choose_from_and_their_moment(policy):
    with pytest.raises(ValueError, match=r"this environment names none: set model=tiny or model=pretrained"):
        policy.generate([Request("", (), step_context=CLEANING[0])], Sampling())
    with pytest.raises(ValueError, match="acts on the moments of an episode"):
        policy.generate([Request("", GO, choices=GO)], Sampling())


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["grpo", "hgpo"])
def test_every_algorithm_learns_from_uniform_to_nearly_always(algo, tmp_path):
    """Two sections in twelve steps: uniformly random actions win 1 in 16 episodes."""
    summary = train(tmp_path, f"algo={algo}", "trainer.iterations=10", "evaluation.every=0")
    assert summary["success_before"] < 0.3
    assert summary["success_after"] > 0.9


@pytest.mark.parametrize(
    "options",
    [
        ["algo=tree_grpo", "sampler=tree", "rollout.group_size=6"],
        ["algo=dr_mas", "team=planner_actor", "team.plans=[explore,follow the sign]"],
        ["objective=gspo", "memory.window=0"],
        ["objective=kl_cov", "algo=hgpo_gae"],
        ["prompt=instruct", "algo=empg", "rollout.record=[entropy]"],
    ],
)
def test_whatever_trains_other_models_trains_this_one(options, tmp_path):
    train(tmp_path, "trainer.iterations=2", "rollout.num_tasks=2", "evaluation.every=0", *options)
    assert len(read_metrics(tmp_path)) == 2


def test_it_prefers_new_actions_and_words_of_the_task():
    policy = FeaturesPolicy(Network(1 << 12, 1 << 10, 4, (-2.0, 3.0), seed=0))
    step_context = CLEANING[3]
    records = [policy.record(ask(step_context), action) for action in step_context.actions]
    logprobs = dict(
        zip(step_context.actions, policy.likelihood(records, temperature=1.0).logprobs.tolist(), strict=True)
    )
    unknown = logprobs["go to table 2"]
    assert logprobs["go to table 1"] == pytest.approx(unknown - 2, abs=1e-4), "taken once"
    assert logprobs["go to shelf 1"] == pytest.approx(unknown + 3, abs=1e-4), "in the task"
    assert logprobs["clean cup 2 with sink 1"] == pytest.approx(unknown + 6, abs=1e-4), "verb and argument are"


def test_descriptions_count_as_words_and_the_best_one_is_leant_to():
    page = StepContext("buy a red cup", "Results", ("click[a1]", "click[a2]"), ("Blue cup, $3.00", "Red cup, $9.00"))
    (features,) = Extractor(1 << 12, 1 << 10)([ask(page)])
    assert features.row.tolist() == [0, 1]
    assert features.leaning.tolist() == [[0, 0], [0, 1]]


SHOP_TASK = "find a soft red lamp, in size 4 pack, and price lower than 20.00 dollars"
LIST = ("click[back]", "click[a1]", "click[a2]")
ITEM = ("click[back]", "click[details]", "click[buy]", "click[4 pack]", "click[2 pack]")
SAYS = {"click[a1]": "Red lamp, $9.00", "click[a2]": "Blue lamp, $30.00"} | dict.fromkeys(ITEM[3:], "size of this")


def shopping(*steps):
    """The places of an episode of (observation, actions, action that led there), and its last moment."""
    step_context, places = None, Places(read_task(SHOP_TASK))
    for observation, actions, action in steps:
        step_context = StepContext(
            SHOP_TASK, observation, actions, tuple(SAYS.get(one, "") for one in actions), step_context, action
        )
        places.see(step_context, observation)
    return places, step_context


RED = (("Results", LIST, ""), ("Red lamp", ITEM, "click[a1]"))
READ = (*RED, ("A soft shade", ("click[back]",), "click[details]"))
WENT_BACK = (*READ, ("Red lamp", ITEM, "click[back]"))


def test_what_is_read_within_a_thing_is_its_own_until_its_page_is_left():
    places, _ = shopping(*READ)
    assert places.inside == {"click[a1]": {"red", "lamp", "soft"}}
    assert places.opened == {"click[a1]": {"click[details]"}}
    assert [place.thing for place in places.stack] == ["", "click[a1]", ""]
    places, _ = shopping(*WENT_BACK)
    assert [place.thing for place in places.stack] == ["", "click[a1]"]
    other = (("Results", LIST, "click[back]"), ("Blue lamp", ITEM, "click[a2]"))
    places, _ = shopping(*WENT_BACK, *other)
    assert [place.thing for place in places.stack] == ["", "click[a2]"], "pages of the same actions are not the same"
    assert places.inside == {"click[a1]": {"red", "lamp", "soft"}, "click[a2]": {"lamp"}}
    assert ("lacking", 2) in places.about_subject()
    assert ("price", ">") in places.about_subject()


def test_things_stand_to_the_task_by_what_was_read_of_them_and_of_others():
    places, _ = shopping(RED[0])
    assert places.about_things(LIST) == [(), ("new", "<", "=", 0, 0), ("new", ">", "<", 0, 0)]
    places, _ = shopping(*WENT_BACK, ("Results", LIST, "click[back]"))
    assert places.about_things(LIST) == [(), ("seen", "<", "=", 0, 1), ("new", ">", "=", 2, 1)]


def test_one_of_each_kind_that_the_task_names_is_left_to_choose():
    for steps, left in ((RED, 1), ((*RED, ("Red lamp", ITEM, "click[2 pack]")), 0)):
        assert ("left", left) in shopping(*steps)[0].about_subject()
    places, step_context = shopping(*RED)
    standing = standing_of(places, step_context)
    assert len(set(standing.row)) == len(ITEM), "buttons go by their names, the named size is another than the other"
    assert {choice.named for choice in choices_of(ITEM, step_context.descriptions, places.task)[:3]} == {0}
    assert [choice.named for choice in choices_of(ITEM, step_context.descriptions, places.task)[3:]] == [2, 0]


def test_a_measure_has_to_stand_in_the_task_as_it_is():
    task = read_task("buy a cup, in size 16 oz")
    roles = {text: role_of(Argument(text, ("oz",)), task) for text in ("16 oz", "6 oz", "oz")}
    assert roles == {"16 oz": EARLIER, "6 oz": NOTHING, "oz": LAST}


def test_it_imitates_the_expert_where_it_is_asked_to(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    before = {}
    for source in ("auto", "random", "expert"):
        options = [
            f"warmstart.source={source}", "warmstart.episodes=32", "warmstart.epochs=6", "warmstart.batch_size=16",
            "trainer.iterations=0",
        ]  # fmt: skip
        before[source] = train(tmp_path / source, *options)["success_before"]
    assert read_config(tmp_path / "auto")["warmstart"]["source"] == "none"
    assert before["auto"] < 0.3
    assert before["random"] < 0.3
    assert before["expert"] > 0.9
