"""WebShop against recordings of the original: transcripts, rankings, goals, prices and scores."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgpo_gym.envs.webshop.catalogue import Catalogue, open_catalogue
from hgpo_gym.envs.webshop.env import WebShopEnv
from hgpo_gym.envs.webshop.goals.goal import Goal
from hgpo_gym.envs.webshop.goals.goal_list import open_goals
from hgpo_gym.envs.webshop.shop.nouns import nouns_by_words
from hgpo_gym.envs.webshop.shop.pages import ShopPage, draw_page
from hgpo_gym.envs.webshop.shop.rules import SEARCH_TEMPLATE, Shop
from hgpo_gym.envs.webshop.shop.scoring import OPTION_MATCHING, score_purchase


@pytest.fixture(autouse=True)
def _shared_cache(webshop_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGPO_GYM_CACHE", str(webshop_cache))


@pytest.fixture
def catalogue(webshop_data: Path) -> Catalogue:
    return open_catalogue(webshop_data)


def transcripts(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / "reference" / "transcripts.jsonl").open() as lines:
        yield from map(json.loads, lines)


def recorded(folder: Path, name: str) -> Any:
    return json.loads((folder / "reference" / name).read_text())


@pytest.mark.promise("WebShop's pages, actions, search results and rewards are those recorded of the original.")
@pytest.mark.parametrize(("observation_mode", "key", "count"), [("text", "obs", 2484), ("text_rich", "obs_rich", 368)])
def test_every_recorded_transcript_is_reproduced(
    webshop_data: Path, catalogue: Catalogue, observation_mode: str, key: str, count: int
) -> None:
    """Texts, actions in order, search results, rewards and ends of all 171 episodes.

    The only steps not sent to the environment are the 86 after a purchase (the original goes on; here an environment
    asks for a reset): the rules of the shop answer those.
    """
    compared = after_purchase = 0
    for transcript in transcripts(webshop_data):
        looks: dict[str, Any] = {"observation_mode": observation_mode, "show_attributes": transcript["show_attrs"]}
        env = WebShopEnv(data=webshop_data, goals=transcript["kind"], split="all", reward="score", **looks)
        shop = Shop(catalogue, env.goals.prices, nouns_by_words, OPTION_MATCHING["original"])
        steps = transcript["steps"]
        end = next((number for number, step in enumerate(steps, 1) if step["done"]), len(steps))
        for step in steps[:end]:
            if step["action"] is None:
                observation, info = env.reset(options={"goal_index": transcript["goal_index"]})
                reward, terminated = 0.0, False
                assert info["task"] == transcript["goal"]["instruction_text"]
            else:
                observation, reward, terminated, _, info = env.step(step["action"])
            assert_same_page(draw_page(env.save_state().state, catalogue, **looks), step, key)
            assert observation == step.get(key, observation)
            assert (info["admissible_actions"], terminated) == (admissible(step), step["done"])
            assert reward == pytest.approx(step["reward"], abs=1e-9)
            if "search" in step:
                found = [catalogue.product(number).asin for number in env.save_state().state.results]
                assert found == step["search"]["asins"]
        state = env.save_state().state
        for step in steps[end:]:
            state = shop.act(state, draw_page(state, catalogue, **looks), step["action"]) or state
            assert_same_page(draw_page(state, catalogue, **looks), step, key)
            after_purchase += 1
        compared += sum(key in step for step in steps)
    assert (compared, after_purchase) == (count, 86)


def assert_same_page(page: ShopPage, step: dict[str, Any], key: str) -> None:
    assert page.text == step.get(key, page.text), step["action"]
    assert list(page.clickables) == step["clickables"], step["action"]


def admissible(step: dict[str, Any]) -> tuple[str, ...]:
    """The recorded clickables as actions to send."""
    if step["has_search_bar"]:
        return (SEARCH_TEMPLATE,)
    return tuple(f"click[{clickable}]" for clickable in step["clickables"])


def test_every_recorded_ranking_is_reproduced(webshop_data: Path, catalogue: Catalogue) -> None:
    """All 169, without an exception."""
    rankings = recorded(webshop_data, "search_top50.json")
    assert len(rankings) == 169
    for ranking in rankings:
        expected = tuple(asin for asin, _ in ranking["top50"])
        assert catalogue.search(ranking["query"], 50) == expected, ranking["query"]
        assert catalogue.search(ranking["query"], 3) == expected[:3], ranking["query"]


@pytest.mark.parametrize(
    ("kind", "file", "count"),
    [("human", "goals_human_seed0.json", 13), ("synthetic", "goals_synthetic_seed0.json", 6910)],
)
def test_recorded_goals_and_prices_are_reproduced(
    webshop_data: Path, catalogue: Catalogue, kind: str, file: str, count: int
) -> None:
    goals, expected = open_goals(catalogue, kind, seed=0), recorded(webshop_data, file)
    assert len(goals) == count
    for position, record in enumerate(expected["goals"]):
        assert goals[position] == Goal.from_record(record)
        assert goals.weight(position) == pytest.approx(record["weight"], abs=1e-12)
    prices = {catalogue.product(number).asin: price for number, price in enumerate(goals.prices.tolist())}
    assert prices == expected["product_prices"]


def test_the_catalogue_is_whole(catalogue: Catalogue) -> None:
    assert len(catalogue) == 1000
    assert int(np.count_nonzero(~np.isnan(catalogue.price_high))) == 93
    assert len(catalogue.synthetic_products) == 415


def test_scores_and_their_parts_are_those_recorded(webshop_data: Path, catalogue: Catalogue) -> None:
    compared = 0
    for transcript in transcripts(webshop_data):
        if not (bought := transcript["bought"]):
            continue
        goals = open_goals(catalogue, transcript["kind"], seed=0)
        number = catalogue.number(bought["asin"])
        assert number is not None
        assert goals.prices[number] == bought["price"]
        goal, product = goals[transcript["goal_index"]], catalogue.product(number)
        score = score_purchase(
            product, bought["price"], bought["options"], goal, nouns_by_words, OPTION_MATCHING["original"]
        )
        assert score.value == pytest.approx(bought["reward"], abs=1e-12)
        assert score.parts == pytest.approx(bought["info"], abs=1e-12)
        assert list(nouns_by_words(product.title)) == bought["nouns_bought"]
        compared += 1
    assert compared == 156


@pytest.mark.parametrize(("matching", "lost"), [("original", 458), ("corrected", 0)])
def test_synthetic_goals_that_the_right_purchase_does_not_meet(catalogue: Catalogue, matching: str, lost: int) -> None:
    goals = open_goals(catalogue, "synthetic", seed=0)
    below = 0
    for goal in goals:
        number = catalogue.number(goal.asin)
        assert number is not None
        product, price = catalogue.product(number), float(goals.prices[number])
        chosen = {name: value for name, value in goal.options if name is not None}
        score = score_purchase(product, price, chosen, goal, nouns_by_words, OPTION_MATCHING[matching])
        below += score.value < 1
    assert below == lost
