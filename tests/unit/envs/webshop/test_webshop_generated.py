"""The generated shop: its files, what tells its products apart, and that its goals can be reached."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, groupby, permutations
from pathlib import Path
from statistics import median

import pytest

from hgpo_gym.envs import check_text_env
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.webshop.catalogue import Catalogue, open_catalogue
from hgpo_gym.envs.webshop.generation import GeneratedProduct, generate_catalogue, generated_folder, write_catalogue
from hgpo_gym.envs.webshop.generation.catalogue import ATTRIBUTES_FILE, GOALS_FILE, PRODUCTS_FILE
from hgpo_gym.envs.webshop.generation.vocabulary import read_vocabulary
from hgpo_gym.envs.webshop.goals.goal_list import Goal, open_goals
from hgpo_gym.envs.webshop.shop.nouns import nouns_by_words
from hgpo_gym.envs.webshop.shop.scoring import OPTION_MATCHING, alike, colour_of, score_purchase


@pytest.fixture(scope="module")
def shop() -> list[GeneratedProduct]:
    return list(generate_catalogue(seed=0, products=400))


@pytest.fixture(scope="module")
def families(shop) -> list[list[GeneratedProduct]]:
    return [list(members) for _, members in groupby(shop, lambda product: product.record["query"])]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory) -> Iterator[Catalogue]:
    """The shop, as the environment reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield open_catalogue(generated_folder(seed=0, products=400))


def best_score(catalogue: Catalogue, number: int, price: float, goal: Goal, matching: str) -> float:
    """Return the score of buying a product with as many of the goal's options as it has."""
    product = catalogue.product(number)
    values = [value for _, value in goal.options]
    chosen = {name: next((v for v in offered if v in values), offered[0]) for name, offered in product.options.items()}
    return score_purchase(product, price, chosen, goal, nouns_by_words, OPTION_MATCHING[matching]).value


def values_of(product: GeneratedProduct) -> list[str]:
    options = product.record["customization_options"]
    return [entry["value"].lower() for entries in options.values() for entry in entries]


def prices_of(product: GeneratedProduct) -> list[float]:
    """Lowest and highest; the benchmark takes a missing price for 100 dollars."""
    return [float(amount) for amount in product.record["pricing"].replace("$", "").split(" - ") if amount] or [100.0]


def highest_limit(product: GeneratedProduct) -> float:
    """The largest price limit that the benchmark can draw for a product: the fourth multiple of ten above its price."""
    return prices_of(product)[-1] // 10 * 10 + 40


@pytest.mark.parametrize("kind", ["human", "synthetic"])
@pytest.mark.parametrize("matching", OPTION_MATCHING)
def test_every_goal_is_met_in_full_by_its_product(catalogue, kind, matching):
    goals = open_goals(catalogue, kind, seed=0)
    assert len(goals) >= 1600
    for goal in goals:
        number = catalogue.number(goal.asin)
        assert best_score(catalogue, number, goals.prices[number], goal, matching) == 1, goal


@pytest.mark.parametrize("seed", [0, 1])
def test_no_other_product_of_the_family_meets_a_goal_in_full(catalogue, families, seed):
    goals = open_goals(catalogue, "human", seed)
    asins = [[product.record["asin"] for product in members] for members in families]
    family_of = {asin: family for family in asins for asin in family}
    best = []
    for goal in goals:
        others = [catalogue.number(asin) for asin in family_of[goal.asin] if asin != goal.asin]
        best.append(max(best_score(catalogue, other, goals.prices[other], goal, "original") for other in others))
    assert max(best) < 1
    assert median(best) == 0.8, "for most goals the family has something that is nearly right"


def test_the_first_page_of_results_has_the_product_but_seldom_on_top(catalogue):
    goals = open_goals(catalogue, "human", seed=0)
    places = [catalogue.search(goal.instruction).index(goal.asin) for goal in goals]
    assert sum(place < 10 for place in places) > 0.9 * len(goals)
    assert sum(place == 0 for place in places) < 0.4 * len(goals)


def test_wrong_values_of_an_option_cost_something(catalogue):
    goals = open_goals(catalogue, "human", seed=0)
    for goal in goals:
        product = catalogue.product(catalogue.number(goal.asin))
        for _, expected in goal.options:
            offered = next(values for values in product.options.values() if expected in values)
            wrong = [value for value in offered if value != expected]
            assert not any(alike(colour_of(expected), colour_of(value)) for value in wrong)


def test_an_instruction_names_the_goal_and_more_than_half_paraphrase_it(shop):
    requested = {attribute.phrase: attribute.in_goal for kind in read_vocabulary()[0] for attribute in kind.attributes}
    goals = [goal for product in shop for goal in product.human]
    reworded = 0
    for goal in goals:
        text, expected = goal["instruction"], goal["instruction_attributes"]
        assert all(value in text for value in goal["instruction_options"])
        assert all(phrase in text or requested[phrase] in text for phrase in expected)
        reworded += not all(phrase in text for phrase in expected)
    assert 0.5 < reworded / len(goals) < 0.7
    assert len({goal["instruction"] for goal in goals}) > 0.99 * len(goals)


def test_members_of_a_family_differ_in_one_attribute_or_have_a_twin_with_other_options(families):
    for members in families[:-1]:  # the last one is cut off
        sets = [frozenset(product.synthetic["attributes"]) for product in members]
        assert sum(times == 2 for times in Counter(sets).values()) == 2
        assert any(len(one - other) == 1 for one, other in combinations(sets, 2))
        assert len(frozenset.intersection(*sets)) >= 2
        for one, other in combinations(members, 2):
            if set(one.synthetic["attributes"]) == set(other.synthetic["attributes"]):
                assert set(values_of(one)) - set(values_of(other))


def test_a_twin_in_each_family_costs_more_than_a_goal_on_the_other_allows(families):
    for members in families[:-1]:
        duplicates = [
            pair
            for pair in permutations(members, 2)
            if set(pair[0].synthetic["attributes"]) == set(pair[1].synthetic["attributes"])
        ]
        assert any(prices_of(dear)[0] > highest_limit(cheap) for cheap, dear in duplicates)


def test_most_goals_ask_for_something_that_the_title_does_not_tell(shop):
    described = [
        all(attribute in product.record["name"].lower() for attribute in goal["instruction_attributes"])
        for product in shop
        for goal in product.human
    ]
    assert sum(described) < 0.15 * len(described)


def test_no_text_mentions_an_attribute_by_the_way():
    kinds, brands = read_vocabulary()
    attributes = {attribute for kind in kinds for attribute in kind.attributes}
    texts = {attribute.says for attribute in attributes} | {f"{brand} K10" for brand in brands}
    for kind in kinds:
        texts |= {kind.about, kind.noun, *kind.uses, *kind.fillers}
    for text in texts:
        assert [attribute.phrase for attribute in attributes if attribute.phrase in text.lower()] == [], text


def test_phrases_of_a_kind_and_values_of_an_option_are_distinct():
    for kind in read_vocabulary()[0]:
        for texts in ([attribute.phrase for attribute in kind.attributes], *kind.options.values()):
            assert [pair for pair in combinations(texts, 2) if alike(*pair)] == []
        everything = [value for values in kind.options.values() for value in values]
        assert len(set(everything)) == len(everything)


def test_prices_come_in_all_forms_and_can_have_a_limit(shop):
    forms = Counter(product.record["pricing"].count("$") for product in shop)
    assert forms[1] > forms[2] > 10
    assert forms[0] > 10
    assert not any(re.search(r"\.\d{3}", product.record["pricing"]) for product in shop)
    assert all(prices_of(product)[-1] < 970 for product in shop)


def test_a_catalogue_has_every_kind_of_product_in_five_categories(shop):
    assert {product.record["category"] for product in shop} == {"beauty", "electronics", "fashion", "garden", "grocery"}
    assert {product.record["query"] for product in shop} == {kind.query for kind in read_vocabulary()[0]}


def test_ids_differ_within_a_catalogue_and_between_two(shop):
    ids = {product.record["asin"] for product in [*shop, *generate_catalogue(1, 400)]}
    assert len(ids) == 800
    assert {len(asin) for asin in ids} == {10}


def test_a_larger_catalogue_begins_with_the_smaller_one(shop):
    assert list(generate_catalogue(0, 50)) == shop[:50]
    assert next(generate_catalogue(1, 50)) != shop[0]


def test_a_large_catalogue_has_goals_on_a_part_of_its_products():
    with_goals = sum(bool(product.human) for product in generate_catalogue(0, 12_000))
    assert 2_500 < with_goals < 3_500


def test_the_files_are_the_same_on_every_machine(tmp_path):
    folder = write_catalogue(tmp_path / "shop", seed=5, products=40)
    content = b"".join((folder / name).read_bytes() for name in (PRODUCTS_FILE, ATTRIBUTES_FILE, GOALS_FILE))
    assert hashlib.sha256(content).hexdigest()[:16] == "cb2896710e106ba4"


def test_a_folder_is_not_written_over(tmp_path):
    with pytest.raises(FileExistsError, match="name a new folder"):
        write_catalogue(tmp_path, seed=0, products=20)


def test_a_catalogue_has_products(tmp_path):
    with pytest.raises(ValueError, match="products=0"):
        write_catalogue(tmp_path / "shop", seed=0, products=0)
    assert list(tmp_path.iterdir()) == []


def test_a_generated_folder_is_kept(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path))
    folder = generated_folder(seed=1, products=10)
    made = (folder / PRODUCTS_FILE).stat().st_mtime_ns
    assert generated_folder(seed=1, products=10) == folder
    assert (folder / PRODUCTS_FILE).stat().st_mtime_ns == made
    assert generated_folder(seed=2, products=10) != folder


def test_actions_that_are_identifiers_are_described():
    env = make("hgpo_gym/WebShop-v0", split="generated_test", describe_actions=True).unwrapped
    check_text_env(env)

    def described():
        return dict(zip(info["admissible_actions"], info["action_descriptions"], strict=True))

    _, info = env.reset(seed=0)
    assert described() == {"search[<your query>]": ""}
    *_, info = env.step("search[makeup remover wipes]")
    assert described()["click[next >]"] == ""
    number = env.state.products_shown[2]
    product = env.catalogue.product(number)
    assert described()[f"click[{product.asin.lower()}]"] == f"{product.title}, {product.price}"
    assert sum(text != "" for text in described().values()) == len(env.state.products_shown) > 5
    *_, info = env.step(f"click[{product.asin.lower()}]")
    option, values = next(iter(product.options.items()))
    assert described()[f"click[{values[0]}]"] == f"{option} of this product"
    assert (described()["click[features]"], described()["click[buy now]"]) == ("page about this product", "")
    assert "action_descriptions" not in make("hgpo_gym/WebShop-v0", split="generated_test").reset(seed=0)[1]
