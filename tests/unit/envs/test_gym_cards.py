"""Gym Cards: the original's transcripts, exact arithmetic, experts and exact values."""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

from hgpo_gym.creditbench.decision_process import Situations, unfold
from hgpo_gym.creditbench.exact import solve, success_rate
from hgpo_gym.creditbench.policies import uniform_policy
from hgpo_gym.envs.gym_cards.blackjack import FACES, Blackjack, Total, dealer_scores
from hgpo_gym.envs.gym_cards.env import GymCardsEnv
from hgpo_gym.envs.gym_cards.formulas import FormulaPrefix, advance, completion, python_value, values
from tests.support import golden

GOLDEN = golden.load("gym_cards")


def test_transcripts_of_the_original_are_reproduced():
    """Random tokens, unavailable numbers, formulas that are too long, `**` and 12 out of 1 and 2 among them."""
    for game, task_id, first, steps in GOLDEN["episodes"]:
        env = GymCardsEnv(game=game, split="all", reward="original", arithmetic="original", solvable=False)
        observation, _ = env.reset(options={"task_id": task_id})
        assert observation == first
        for action, expected, *outcome in steps:
            observation, reward, terminated, _, info = env.step(action)
            shown = first.replace("formula: ", f"formula: {expected}") if "Points" in game else expected
            assert (observation, reward, terminated, info["action_valid"]) == (shown, *outcome, True)


def test_blackjack_counts_like_the_original():
    """The original's recorded deals: cards of dealer and player, and the reward."""
    for dealer, player, reward in GOLDEN["blackjack"]["deals"]:
        mine, its = Total.of(player.split()), Total.of(dealer.split())
        if mine.score > 21:
            assert reward == -1
        else:
            assert its.score >= 17
            dealt = 0 if its.score > 21 else its.score
            assert reward == (mine.score > dealt) - (mine.score < dealt)


def test_the_dealer_ends_as_often_as_simulated():
    exact = dealer_scores(Total.of("6"))
    assert sum(exact.values()) == pytest.approx(1)
    generator, ends = np.random.default_rng(0), []
    for _ in range(4_000):
        total = Total.of("6")
        while total.score < 17:
            total = total.plus("J" if (rank := int(generator.integers(13))) > 8 else FACES[rank])
        ends.append(0 if total.score > 21 else total.score)
    assert exact[0] == pytest.approx(np.mean(np.array(ends) == 0), abs=0.03)


def test_basic_strategy():
    """The published tables for many decks and a dealer who stands on 17 with an ace, without doubling and splitting."""

    def best(dealer, *faces):
        rules = Blackjack(dealer=dealer, faces=faces, original=True)
        return rules.expert_action(rules.start)

    hard = {total: [best(dealer, "J", str(total - 10)) for dealer in FACES] for total in (12, 13, 16, 17)}
    assert [dealer for dealer, action in zip(FACES, hard[12], strict=True) if action == "stand"] == ["4", "5", "6"]
    assert [dealer for dealer, action in zip(FACES, hard[13], strict=True) if action == "stand"] == list("23456")
    assert hard[16] == ["hit", *["stand"] * 5, *["hit"] * 6]
    assert set(hard[17]) == {"stand"}
    soft18 = [dealer for dealer in FACES if best(dealer, "A", "7") == "hit"]
    assert soft18 == ["A", "9", "J", "Q", "K"]


def test_the_best_play_earns_its_exact_value():
    """Every deal once, within four standard errors."""
    env = GymCardsEnv(game="Blackjack", split="all", reward="original", expert=True)
    differences = []
    for number, task_id in enumerate(env.task_ids):
        _, info = env.reset(seed=number, options={"task_id": task_id})
        rules = env.dynamics(task_id)
        earned = -max(rules.values(rules.start))
        while info["expert_action"]:
            _, reward, *_, info = env.step(info["expert_action"])
            earned += reward
        differences.append(earned)
    assert abs(np.mean(differences)) < 4 * np.std(differences) / np.sqrt(len(differences))


@pytest.mark.parametrize(
    ("numbers", "arithmetic", "expected"),
    [
        ("3-3-8-8", "exact", True), ("3-3-8-8", "original", False), ("1-4-5-6", "exact", True),
        ("1-4-5-6", "original", True), ("1-1-1-1", "exact", False),
    ],
)  # fmt: skip
def test_the_expert_writes_a_shortest_formula_where_one_is_right(numbers, arithmetic, expected):
    env = GymCardsEnv(split="all", solvable=False, arithmetic=arithmetic, expert=True, milestones=True)
    _, info = env.reset(options={"task_id": numbers})
    reached, tokens = 0, 0
    while info["expert_action"]:
        *_, info = env.step(info["expert_action"])
        reached, tokens = reached + info["milestone"], tokens + 1
    assert (info["won"], reached) == (expected, 4 * expected)
    assert tokens in (8, 10, 12) if expected else tokens == 0


def test_a_product_with_zero_can_use_up_a_number():
    prefix = FormulaPrefix.start((5, 5, 8, 24))
    for token in "(5-5)":
        prefix = advance(prefix, token)
    assert completion(tuple("(5-5)"), prefix, 24, ("+", "*"), "exact") == ("*", "8", "+", "24", "=")


def test_a_right_formula_that_floats_miss_wins_only_by_exact_arithmetic():
    formula = "8/(3-8/3)"
    assert (python_value(formula, "exact"), python_value(formula, "original")) == (24, 23.99999999999999)
    for arithmetic, reward in (("exact", 10.0), ("original", 0.0)):
        env = GymCardsEnv(split="all", arithmetic=arithmetic)
        env.reset(options={"task_id": "3-3-8-8"})
        for token in formula:
            assert env.step(token)[4]["action_valid"]
        assert env.step("=")[1:3] == (reward, True)


def test_a_formula_is_never_run_as_code():
    for text in ("9**9**9", "10**10**10**10", "3(4)", "(3", "", "1/0", "3//0", "(0-8)**(1/3)", "*3"):
        assert python_value(text, "original") != 24
    assert python_value("12+12", "exact") == python_value(" 3*2**3", "exact") == 24


def test_values_are_those_of_all_trees():
    """Two numbers at a time, in every order, by every operator."""

    def brute_force(numbers):
        if len(numbers) == 1:
            return set(numbers)
        found = set()
        for (i, a), (j, b) in permutations(enumerate(numbers), 2):
            rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
            for result in (a + b, a - b, a * b, *([a / b] if b else [])):
                found |= brute_force([result, *rest])
        return found

    for numbers in ((1, 1, 5, 8), (3, 3, 8, 8), (2, 4, 10, 10)):
        brute = brute_force(list(map(Fraction, numbers)))
        assert brute == values(numbers)


def test_descriptions_have_the_value_so_far_and_late_those_at_the_end():
    env = GymCardsEnv(split="all", describe_actions=True)
    _, info = env.reset(options={"task_id": "3-3-8-8"})
    described = []
    for action in "8/(3-8/3)":
        described.append(dict(zip(info["admissible_actions"], info["action_descriptions"], strict=True))[action])
        *_, info = env.step(action)
    assert described == [
        "H8 or C8, value 8, left 3 3 8",
        "divided by, value 8, left 3 3 8",
        "open, left 3 3 8",
        "C3 or C3, value 3, left 3 8",
        "minus, value 3, left 3 8",
        "H8 or C8, value -5, left 3, can end at 24",
        "divided by, value -8, left 3, can end at 24",
        "C3 or C3, value 1/3, left none, can end at 24",
        "close, value 24, left none, can end at 24",
    ]
    env = GymCardsEnv(game="Blackjack", split="all", describe_actions=True)
    *_, info = env.reset(options={"task_id": "7-A-5"})
    assert info["action_descriptions"] == (
        "take no more cards, soft 16 against 7",
        "take another card, soft 16 against 7",
    )


def test_every_admissible_walk_ends_in_a_formula():
    env = GymCardsEnv(split="all", solvable=False)
    generator, lengths = np.random.default_rng(0), set()
    for episode in range(60):
        _, info = env.reset(seed=episode)
        length = 0
        while actions := info["admissible_actions"]:
            *_, info = env.step(actions[int(generator.integers(len(actions)))])
            length += 1
        lengths.add(length)
    assert lengths == {8, 10, 12}


def test_tasks_and_splits():
    counts = {
        (game, split): len(GymCardsEnv(game=game, split=split).task_ids)
        for game, split in product(("NumberLine", "EZPoints", "Points24", "Blackjack"), ("train", "test", "all"))
    }
    assert [counts[game, "all"] for game in ("NumberLine", "EZPoints", "Points24", "Blackjack")] == [30, 7, 566, 1728]
    assert len(GymCardsEnv(split="all", solvable=False).task_ids) == 715
    for game in ("NumberLine", "EZPoints", "Points24", "Blackjack"):
        assert counts[game, "train"] + counts[game, "test"] == counts[game, "all"]
        assert 0.2 < counts[game, "test"] / counts[game, "all"] < 0.5


def test_exact_values_agree_with_play():
    """A deal of Blackjack as a decision process against its episodes, and a line by hand."""
    env = GymCardsEnv(game="Blackjack", split="all")
    situations = Situations()
    process = unfold(env.dynamics("9-J-6"), situations, window=0, history_length=0, key="observation")
    policy = uniform_policy(situations)
    exact = success_rate(process, policy, solve(process, policy, 1.0, 15))
    generator, won = np.random.default_rng(0), []
    env.reset(seed=0)
    for _ in range(3_000):
        _, info = env.reset(options={"task_id": "9-J-6"})
        while info["admissible_actions"]:
            *_, info = env.step(("stand", "hit")[int(generator.integers(2))])
        won.append(info["won"])
    assert exact == pytest.approx(np.mean(won), abs=0.03)
    assert GymCardsEnv(reward="original").dynamics("3-3-8-8") is None
