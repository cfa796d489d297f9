"""Promises of WebShop beyond the recordings of the original, which tests/parity compares."""

import random
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from hgpo_gym.envs import TextVectorEnv, check_text_env
from hgpo_gym.envs.webshop.catalogue import Catalogue, open_catalogue
from hgpo_gym.envs.webshop.env import WebShopEnv
from hgpo_gym.envs.webshop.goals.drawing import draw_price_limit
from hgpo_gym.envs.webshop.goals.goal_list import GoalIds, open_goals, split_positions
from hgpo_gym.envs.webshop.shop.rules import parse_action
from hgpo_gym.envs.webshop.shop.scoring import alike

WEBSHOP = "hgpo_gym/WebShop-v0"
TOOTHBRUSH = "beauty-B09MW563KN-0-dd368255"
"""The first human goal."""


@pytest.fixture(autouse=True)
def _shared_cache(webshop_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGPO_GYM_CACHE", str(webshop_cache))


@pytest.fixture
def catalogue(webshop_data: Path) -> Catalogue:
    return open_catalogue(webshop_data)


@pytest.fixture
def env(webshop_data: Path) -> WebShopEnv:
    return WebShopEnv(data=webshop_data, split="all")


def play(env: WebShopEnv, *actions: str, **options: Any) -> tuple[str, float, dict[str, Any]]:
    """Reset with options and play; the last observation, reward and info."""
    observation, info = env.reset(options=options)
    reward = 0.0
    for action in actions:
        observation, reward, *_, info = env.step(action)
    return observation, reward, info


def buy_toothbrush(colour: str) -> tuple[str, ...]:
    return "search[tongue cleaner brush]", "click[b09mw563kn]", f"click[{colour}]", "click[buy now]"


# The contract


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"goals": "synthetic", "split": "train"},
        {"observation_mode": "text_rich", "show_attributes": True, "reward": "score", "split": "validation"},
    ],
)
def test_it_keeps_the_contract(webshop_data: Path, options: dict[str, Any]) -> None:
    check_text_env(gymnasium.make(WEBSHOP, data=webshop_data, **options))


def test_the_reward_is_ten_for_the_full_score_and_info_says_why(webshop_data: Path, env: WebShopEnv) -> None:
    _, reward, info = play(env, *buy_toothbrush("blue"), goal_index=0)
    assert (reward, info["won"], info["score"], info["nouns"]) == (10.0, True, 1.0, "words")
    assert info["score_parts"]["r_option"] == 1
    _, reward, info = play(env, *buy_toothbrush("pink"), goal_index=0)
    assert (reward, info["won"]) == (0.0, False)
    assert info["score"] == pytest.approx(2 / 3)
    raw = WebShopEnv(data=webshop_data, split="all", reward="score")
    _, reward, info = play(raw, *buy_toothbrush("pink"), goal_index=0)
    assert reward == pytest.approx(2 / 3)
    assert raw.task_type(info["task_id"]) == info["task_type"] == "beauty"


def test_what_is_not_understood_changes_nothing(env: WebShopEnv) -> None:
    observation, info = env.reset(options={"goal_index": 0})
    odd = ["", "[", "]", "[]", "search", "search[]", "click[search]", "Search[shoes]", "\ud800", "click[\x00]", "a[b]"]
    odd += ["[" * 100_000, "]" * 100_000, "search[" * 10_000, "click[" + "ü" * 100_000 + "]", "search[shoes\nblack]"]
    for action in odd:
        again, reward, terminated, truncated, after = env.step(action)
        assert (again, reward, terminated, truncated) == (observation, 0.0, False, False), action[:20]
        assert after["action_valid"] is False
        assert after["admissible_actions"] == info["admissible_actions"]


@pytest.mark.parametrize(
    "query",
    ["<r>", "<c> shoes", "<a>", "\ud800", "_" * 50_000, "a " * 5_000, "é" * 9_000, " ".join(map(str, range(2000)))],
)
def test_any_words_can_be_searched(env: WebShopEnv, query: str) -> None:
    """The original crashes at the first three, and at more than 1,024 different words."""
    observation, _, info = play(env, f"search[{query}]", goal_index=0)
    assert "Page 1 (Total results: " in observation
    assert info["action_valid"]


@pytest.mark.parametrize(
    ("action", "name", "argument"),
    [
        ("search[Red Shoes]", "search", "red shoes"),
        ("search[shoes] extra", "search", "shoes"),
        ("search[shoes [men]]", "search[shoes ", "men]"),
        ("click[next >]click[next >]", "click[next >]click", "next >"),
        ("search[a]]", "search", "a]"),
        ("search[[]", "search", "["),
        ("search[shoes\nblack]", "", ""),
        ("[x]", "", ""),
        ("a[]", "", ""),
        ("a[[]", "a", "["),
    ],
)
def test_actions_are_read_as_the_original_reads_them(action: str, name: str, argument: str) -> None:
    assert parse_action(action) == (name, argument)


# Goals


@pytest.mark.parametrize("kind", ["human", "synthetic"])
def test_every_id_leads_back_to_its_goal(catalogue: Catalogue, kind: str) -> None:
    goals = open_goals(catalogue, kind, seed=0)
    ids = list(GoalIds(goals, range(len(goals))))
    assert len(set(ids)) == len(goals)
    assert [goals.find(goal_id) for goal_id in ids] == list(range(len(goals)))
    for unknown in (
        "",
        "-",
        "beauty",
        TOOTHBRUSH[:-1],
        f"x{TOOTHBRUSH}",
        TOOTHBRUSH.replace("-0-", "-9-"),
        "\ud800-a-1-b",
    ):
        assert goals.find(unknown) is None


def test_splits_of_the_small_setting(webshop_data: Path, catalogue: Catalogue) -> None:
    synthetic, human = open_goals(catalogue, "synthetic", 0), open_goals(catalogue, "human", 0)
    assert split_positions(synthetic, catalogue, "validation") == range(500)
    assert split_positions(synthetic, catalogue, "train") == range(500, 6910)
    assert split_positions(human, catalogue, "validation") == range(6)
    assert split_positions(human, catalogue, "train") == range(6, 13)
    assert split_positions(human, catalogue, "all") == range(13)
    with pytest.raises(ValueError, match=r"Unknown split 'test'\..*validation.*1000 products"):
        WebShopEnv(data=webshop_data, split="test")


def test_tasks_of_other_splits_are_refused(webshop_data: Path) -> None:
    env = WebShopEnv(data=webshop_data, split="train")
    assert TOOTHBRUSH not in env.task_ids
    with pytest.raises(ValueError, match=r"Unknown task_id 'beauty-B09MW563KN-0-dd368255' in the split 'train'"):
        env.reset(options={"task_id": TOOTHBRUSH})
    with pytest.raises(ValueError, match=r"Unknown task_id 5 in the split 'train'"):
        env.reset(options={"task_id": 5})
    _, info = env.reset(options={"goal_index": 0})
    assert info["task_id"] == TOOTHBRUSH


@pytest.mark.parametrize("index", [-1, 13, "3", 1.5])
def test_a_goal_index_is_a_place_in_the_list(env: WebShopEnv, index: Any) -> None:
    with pytest.raises(ValueError, match=r"goal_index=.*0 to 12"):
        env.reset(options={"goal_index": index})


def test_a_custom_goal(env: WebShopEnv) -> None:
    goal = {
        "asin": "B09MW563KN",
        "instruction_text": "a pink tongue brush",
        "attributes": ["oral hygiene"],
        "goal_options": {"color": "pink"},
    }
    observation, reward, info = play(env, *buy_toothbrush("pink"), goal=goal)
    assert (reward, info["won"], info["task"]) == (10.0, True, "a pink tongue brush")
    assert info["task_id"].startswith("beauty-B09MW563KN-own-")
    assert observation.startswith("Thank you")
    described = {
        "category": "beauty", "query": "x", "name": "brush", "product_category": "Beauty", "instruction_text": "b",
    }  # fmt: skip
    _, _, info = play(env, *buy_toothbrush("pink"), goal=described)
    assert info["score_parts"]["w_price"] == 1  # no attributes, no options: the price limit alone


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("a brush", "A goal is a mapping"),
        ({"instruction": "a brush"}, "Unknown key of a goal 'instruction'. Did you mean 'instruction_text'"),
        ({"asin": "B09MW563KN"}, "lacks 'instruction_text'"),
        (
            {"asin": "B000000000", "instruction_text": "brush"},
            "'B000000000' is not in the catalogue: set 'asin' to one of B0",
        ),
    ],
)
def test_a_goal_that_cannot_be(env: WebShopEnv, goal: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        env.reset(options={"goal": goal})


def test_one_way_to_name_a_goal(env: WebShopEnv) -> None:
    with pytest.raises(ValueError, match="'goal_index' and 'task_id' all name a goal"):
        env.reset(options={"goal_index": 0, "task_id": TOOTHBRUSH})


@pytest.mark.parametrize(
    ("price", "least", "most"), [(0, 20, 40), (9.99, 20, 40), (10, 30, 50), (955, 970, 990), (979.99, 990, 990)]
)
def test_price_limits(price: float, least: float, most: float) -> None:
    limits = {draw_price_limit(random.Random(seed), price) for seed in range(200)}
    assert (min(limits), max(limits)) == (least, most)
    assert draw_price_limit(random.Random(0), 980) == 1_000_000


# States


def test_what_is_chosen_and_visited(webshop_data: Path) -> None:
    """Kept on sub-pages, forgotten in results; what was visited is forgotten on the search page."""
    env = WebShopEnv(data=webshop_data, split="all", observation_mode="text_rich", show_attributes=True)
    observation, *_ = play(env, *buy_toothbrush("blue")[:3], "click[attributes]", "click[< prev]", goal_index=0)
    assert observation.startswith("You have clicked blue.\n")
    observation, *_ = env.step("click[< prev]")
    assert "[clicked button] B09MW563KN [clicked button_]" in observation
    observation, *_ = env.step("click[b09mw563kn]")
    assert "clicked" not in observation
    env.step("click[back to search]")
    observation, *_ = env.step("search[tongue cleaner brush]")
    assert "[button] B09MW563KN [button_]" in observation


def test_environments_share_catalogue_and_goals(webshop_data: Path) -> None:
    vector = TextVectorEnv(WEBSHOP, num_tasks=2, group_size=2, data=webshop_data)
    _, infos = vector.reset(seed=0)
    assert infos["task_id"][0] == infos["task_id"][1] != infos["task_id"][2]
    one, other = (WebShopEnv(data=webshop_data, split=split) for split in ("all", "train"))
    assert one.catalogue is other.catalogue
    assert one.goals is other.goals


# Options


def test_the_tagger_is_asked_for_at_once(webshop_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ModuleNotFoundError, match=r"nouns='spacy' needs .*en_core_web_sm.*nouns='words'"):
        WebShopEnv(data=webshop_data, nouns="spacy")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("dry hair", "hair, dry", True), ("Long-Sleeve", "long sleeve shirt", True), ("caf\u00e9", "caf", True),
        ("cotton", "coton", True), ("cotton", "cottage", False), ("", "", False), ("\u00d7", "\u00d7", False),
    ],
)  # fmt: skip
def test_alike(one: str, other: str, same: bool) -> None:
    """Latin-1's letters beyond ASCII are dropped before texts are compared, as the original's library does."""
    assert alike(one, other) is same
