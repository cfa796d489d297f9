"""WebShop out of the box: generated splits, the experts, what small models are given to type."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from hgpo_gym.config.compose import load_run
from hgpo_gym.envs.checker import check_text_env
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.webshop.env import WebShopEnv
from hgpo_gym.envs.webshop.experts import SHOPPING_TASKS, SeenPages, advise
from hgpo_gym.envs.webshop.goals.queries import suggested_queries
from hgpo_gym.envs.webshop.shop.pages import ShopState
from hgpo_gym.policies.huggingface import train_tokenizer


@pytest.fixture(autouse=True)
def cache(webshop_cache, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(webshop_cache))


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine on which nobody has fetched anything."""
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_without_any_data_the_generated_shop_opens_with_one_warning_that_names_the_remedy(no_data):
    with pytest.warns(UserWarning, match="hgpo-gym data webshop") as caught:
        env = gymnasium.make("hgpo_gym/WebShop-v0").unwrapped
    assert len([warning for warning in caught if "WebShop" in str(warning.message)]) == 1
    assert env.split == "generated"
    assert len(env.task_ids) == 1600


@pytest.mark.filterwarnings("error")
def test_generated_splits_that_are_asked_for_need_no_data_and_no_warning(no_data):
    training, test = (WebShopEnv(split=split) for split in ("generated", "generated_test"))
    assert (len(training.task_ids), len(test.task_ids)) == (1600, 200)
    asins = [{env.catalogue.product(number).asin for number in range(len(env.catalogue))} for env in (training, test)]
    assert not asins[0] & asins[1]
    kinds = [{env.catalogue.product(number).query for number in range(len(env.catalogue))} for env in (training, test)]
    assert kinds[0] == kinds[1]


@pytest.mark.filterwarnings("error")
def test_a_list_of_splits_stands_for_the_first_that_the_catalogue_has(webshop_data):
    splits = ["test", "validation", "generated_test"]
    assert WebShopEnv(data=webshop_data, split=splits, goals="synthetic").split == "validation"
    assert WebShopEnv(data=webshop_data, split=["train", "generated"]).split == "train"
    assert WebShopEnv(data=webshop_data, split="generated").split == "generated"


def test_a_place_without_products_is_an_error_where_it_was_named(no_data, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"hgpo-gym data webshop.*split='generated'"):
        WebShopEnv(data=tmp_path)
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="hgpo-gym data webshop"):
        WebShopEnv()


def test_a_split_that_no_catalogue_has_is_unknown(no_data):
    with pytest.raises(ValueError, match=r"'validaton'\. Did you mean 'validation'"):
        WebShopEnv(split=["validaton", "generated"])


EXPERTS = sorted(SHOPPING_TASKS)


def shop_with(expert, **options):
    return WebShopEnv(**{"split": "generated", "expert": True, "expert_policy": expert, **options})


def follow(env, info, steps=30):
    """Return the expert's actions until a purchase, and its result."""
    done = []
    for _ in range(steps):
        done.append(info["expert_action"])
        _, _, terminated, _, info = env.step(done[-1])
        assert info["action_valid"], done
        if terminated:
            break
    return done, info


def evaluate(env, tasks, steps):
    scores = []
    for task_id in tasks:
        _, info = env.reset(options={"task_id": task_id})
        scores.append(follow(env, info, steps)[1].get("score", 0))
    return np.mean([score == 1 for score in scores]), np.mean(scores)


@pytest.mark.parametrize("expert", EXPERTS)
def test_an_environment_with_an_expert_keeps_its_promises(expert):
    check_text_env(shop_with(expert, queries="suggested"))


@pytest.mark.parametrize(("expert", "least_success", "least_score"), [("informed", 0.8, 0.9), ("reader", 0.4, 0.8)])
def test_experts_do_well_on_goals_never_seen_before(expert, least_success, least_score):
    env = shop_with(expert, split="generated_test")
    success, score = evaluate(env, env.task_ids[:60], steps=30)
    assert success >= least_success
    assert score >= least_score


@pytest.mark.parametrize(
    ("expert", "goals", "tasks", "least_success", "least_score"),
    [
        ("informed", "human", 13, 1.0, 1.0),
        ("reader", "human", 13, 0.6, 0.85),
        ("informed", "synthetic", 40, 0.75, 0.85),
        ("reader", "synthetic", 40, 0.75, 0.85),
    ],
)
def test_experts_do_well_on_real_goals(webshop_data, expert, goals, tasks, least_success, least_score):
    env = shop_with(expert, data=webshop_data, split="all", goals=goals)
    success, score = evaluate(env, env.task_ids[:tasks], steps=30)
    assert success >= least_success
    assert score >= least_score


def test_an_expert_reads_before_it_chooses_and_chooses_before_it_buys():
    env = shop_with("informed")
    _, info = env.reset(options={"task_id": env.task_ids[0]})
    done, info = follow(env, info)
    assert info["won"]
    assert done[0] == f"search[{suggested_queries(info['task'])[0]}]"
    assert done[-1] == "click[buy now]"
    last_opened = max(place for place, action in enumerate(done) if action.startswith("click[gen"))
    kinds = ["read" if action in READING else "other" for action in done[last_opened + 1 : -1]]
    assert kinds == sorted(kinds, reverse=True)


READING = ("click[features]", "click[description]", "click[< prev]")


@pytest.mark.parametrize("expert", EXPERTS)
def test_an_expert_finds_its_way_back_from_anywhere(expert):
    env = shop_with(expert, queries="suggested")
    rng = np.random.default_rng(0)
    bought = []
    for task_id in env.task_ids[:40]:
        _, info = env.reset(options={"task_id": task_id})
        terminated = False
        for _ in range(int(rng.integers(1, 12))):
            if not terminated:
                action = str(rng.choice([*info["admissible_actions"], "search[red]", "dance"]))
                _, _, terminated, _, info = env.step(action)
        if not terminated:
            bought.append("score" in follow(env, info, steps=60)[1])
    assert len(bought) > 20
    assert all(bought)


@pytest.mark.parametrize("expert", EXPERTS)
def test_wrong_options_are_mended_before_buying(expert):
    env = shop_with(expert)
    _, info = env.reset(options={"task_id": env.task_ids[0]})
    done, info = follow(env, info)
    opened = max(place for place, action in enumerate(done) if action.startswith("click[gen"))
    expected = next(action for action in done[opened + 1 : -1] if action not in READING)
    _, info = env.reset(options={"task_id": env.task_ids[0]})
    for action in done[:-1]:
        _, _, _, _, info = env.step(action)
    assert info["expert_action"] == "click[buy now]"
    value = expected[6:-1]
    options = next(values for values in opened_product(env).options.values() if value in values)
    other = next(option for option in options if option != value)
    _, _, _, _, info = env.step(f"click[{other}]")
    assert info["expert_action"] == expected


def opened_product(env):
    return env.catalogue.product(env.save_state().state.product)


@pytest.mark.parametrize("expert", EXPERTS)
def test_what_an_expert_remembers_is_part_of_a_snapshot(expert):
    env = shop_with(expert)
    _, info = env.reset(options={"task_id": env.task_ids[3]})
    for _ in range(4):
        _, _, _, _, info = env.step(info["expert_action"])
    saved = env.snapshot()
    done, end = follow(env, info)
    env.reset(options={"task_id": env.task_ids[5]})
    for target in (env, shop_with(expert)):
        _, info = target.restore(saved)
        assert follow(target, info) == (done, end)


class Disguised:
    """A catalogue without what only the benchmark knows of its products, and without pages that were not read."""

    def __init__(self, catalogue, notes):
        self._catalogue, self._notes = catalogue, notes

    def product(self, number):
        hidden = {"attributes": [], "category": "", "query": "", "product_category": "", "instruction": None}
        product = replace(self._catalogue.product(number), **hidden, instruction_attributes=[])
        seen = self._notes.of(number)
        product = product if "features" in seen else replace(product, bullets=[])
        product = product if "description" in seen else replace(product, description="")
        return product if seen else replace(product, options={})


@pytest.mark.parametrize("expert", EXPERTS)
def test_an_expert_knows_of_products_only_what_it_has_read_on_their_pages(expert):
    env = shop_with(expert, split="generated_test")
    for task_id in env.task_ids[:10]:
        _, info = env.reset(options={"task_id": task_id})
        notes, terminated = SeenPages(), False
        while not terminated:
            state = env.save_state().state
            notes = notes.after(state)
            goal = state.goal if expert == "informed" else instruction_alone(state)
            disguised = Disguised(env.catalogue, notes)
            action = advise(SHOPPING_TASKS[expert](goal), notes, state._replace(goal=goal), disguised)
            assert action == info["expert_action"]
            _, _, terminated, _, info = env.step(action)


def instruction_alone(state: ShopState):
    goal = replace(state.goal, asin="", category="", query="", name="", product_category="")
    return replace(goal, price_limit=0.0, attributes=(), options=())


def test_suggested_queries_are_the_actions_of_the_search_page_and_nothing_else_changes():
    free, suggested = (shop_with("reader", queries=queries) for queries in ("free", "suggested"))
    task_id = free.task_ids[0]
    (one, info), (other, listing) = (env.reset(options={"task_id": task_id}) for env in (free, suggested))
    assert one == other
    assert info["admissible_actions"] == ("search[<your query>]",)
    assert listing["admissible_actions"] == tuple(f"search[{query}]" for query in suggested_queries(info["task"]))
    assert info["expert_action"] in listing["admissible_actions"]
    for action in (*listing["admissible_actions"], "search[something else]"):
        (one, *_, info), (other, *_, listed) = free.step(action), suggested.step(action)
        assert listed["action_valid"]
        assert (one, info) == (other, listed)


@pytest.mark.parametrize(
    ("instruction", "queries"),
    [
        (
            "i'm shopping for a cruelty free hair mask, in size 4 oz, and price lower than 60.00 dollars",
            (
                "cruelty free hair mask 4 oz",
                "cruelty free hair mask",
                "i'm shopping for a cruelty free hair mask, in size 4 oz",
            ),
        ),
        ("blue mug", ("blue mug",)),
        ("i need a [large] mug", ("large mug", "i need a large mug")),
        ("a mug,\nplease", ("mug", "a mug, please")),
        ("please!", ("please!",)),
    ],
)
def test_queries_of_an_instruction(instruction, queries):
    assert suggested_queries(instruction) == queries


@pytest.mark.parametrize(("constrain", "queries"), [("admissible", "suggested"), ("none", "free")])
def test_who_may_only_response_what_is_listed_is_given_searches(constrain, queries):
    settings = load_run(["env=webshop", f"engine.constrain={constrain}"])
    assert settings.env.options["queries"] == queries


def test_prompts_of_the_preset_fit_small_models():
    settings = load_run(["env=webshop", "env.split=generated"])
    memory, template = settings.memory.make(), settings.prompt
    env = make(settings.env.id, expert=True, **settings.env.options)
    pairs = []
    for task_id in env.get_wrapper_attr("task_ids")[:20]:
        memory.reset()
        observation, info = env.reset(options={"task_id": task_id})
        ended = False
        while not ended:
            prompt = template.render(info["task"], memory.observe(observation, info["admissible_actions"]))
            action = info["expert_action"]
            assert action in info["admissible_actions"]
            pairs.append((prompt, template.write_response(action)))
            memory.record(action)
            observation, _, terminated, truncated, info = env.step(action)
            ended = terminated or truncated
    tokenizer = train_tokenizer(("".join(pair) for pair in pairs), settings.model.vocabulary_size)
    assert np.mean([len(tokenizer(prompt)["input_ids"]) for prompt, _ in pairs]) < 600
    longest = max(len(tokenizer(response)["input_ids"]) for _, response in pairs)
    assert longest < settings.rollout.max_new_tokens
