"""Sokoban: its rules, its solver against another search, its generator, its expert."""

from collections import deque
from dataclasses import replace

import pytest

from hgpo_gym.envs.sokoban.env import SokobanEnv
from hgpo_gym.envs.sokoban.generator import canonical, generate_levels, map_of
from hgpo_gym.envs.sokoban.rules import Level
from hgpo_gym.envs.sokoban.solver import Solver

TWO_BOXES = generate_levels(levels=12, size=6, boxes=2, inner_walls=1, min_moves=5, seed=3)


def fewest_moves(level):
    """By plain breadth-first search over all states; None if no moves solve the level."""
    depth = {level.start: 0}
    waiting = deque([level.start])
    while waiting:
        state = waiting.popleft()
        if level.is_solved(state):
            return depth[state]
        for after in level.moves(state).values():
            if after not in depth:
                depth[after] = depth[state] + 1
                waiting.append(after)
    return None


def test_the_rules_by_hand():
    level = Level.parse("#####/#@$.#/#---#/#####")
    assert level.rows(level.start) == ["#####", "#@$.#", "#---#", "#####"]
    moves = level.moves(level.start)
    assert list(moves) == ["down", "right"]
    assert level.rows(moves["right"])[1] == "#-@*#"
    assert level.is_solved(moves["right"])
    assert level.moves(moves["right"]) == {}
    on_goal = Level.parse("#####/#+$-#/#####")
    assert on_goal.rows(on_goal.start)[1] == "#+$-#"


def test_a_box_moves_neither_into_a_wall_nor_into_a_box():
    level = Level.parse("######/#@$$.#/#-.--#/#----#/######")
    assert list(level.moves(level.start)) == ["down"]
    below = level.moves(level.start)["down"]
    assert "right" in level.moves(below)  # onto the goal, which is free floor to the player


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#####/#@$.#/####", "its rows differ in length"),
        ("######/#@@$.#/######", "2 players, not one"),
        ("####/#$.#/####", "0 players, not one"),
        ("#####/#@$-#/#####", "1 boxes for 0 goals"),
    ],
)
def test_a_map_that_is_none_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Level.parse(text)


@pytest.mark.parametrize("text", TWO_BOXES)
def test_plans_are_as_short_as_can_be_and_solve_the_level(text):
    level = Level.parse(text)
    state, plan = level.start, Solver(level).plan(level.start)
    assert len(plan) == fewest_moves(level) >= 5
    for action in plan:
        state = level.moves(state)[action]
    assert level.is_solved(state)


def test_from_every_state_the_solver_agrees_with_the_search():
    level = Level.parse("######/#@---#/#-$$.#/#--.-#/######")
    solver = Solver(level)
    states, waiting = {level.start}, [level.start]
    while waiting:
        for after in level.moves(waiting.pop()).values():
            if after not in states:
                states.add(after)
                waiting.append(after)
    sample = sorted(states, key=lambda state: (state.player, sorted(state.boxes)))[::9]
    stuck = 0
    for state in sample:
        plan = solver.plan(state)
        stuck += plan is None
        assert (None if plan is None else len(plan)) == fewest_moves(replace(level, start=state))
    assert 0 < stuck < len(sample)


def states_of(level):
    """All that its start can become, drawn."""
    states = [level.start]
    for state in states:  # grows while it is gone through
        states += set(level.moves(state).values()) - set(states)
    return ("/".join(level.rows(state)) for state in states)


def test_no_test_level_is_what_a_training_level_can_become():
    """This holds if maps are held out. With held-out levels, many are other positions of training maps."""
    for held_out, least, most in (("maps", 0, 0), ("levels", 5, 19)):
        train, test = (SokobanEnv(split=split, levels=120, held_out=held_out).task_ids for split in ("train", "test"))
        assert not set(map(canonical, train)) & set(map(canonical, test))
        reached = {canonical(state) for level in map(Level.parse, train) for state in states_of(level)}
        assert least <= len({canonical(level) for level in test} & reached) <= most
        assert (not {map_of(level) for level in train} & {map_of(level) for level in test}) == (held_out == "maps")


def test_levels_are_reproducible_different_and_none_is_another_one_turned():
    options = {"levels": 50, "size": 6, "boxes": 1, "inner_walls": 2, "min_moves": 4}
    levels = generate_levels(**options, seed=0)
    generate_levels.cache_clear()
    assert generate_levels(**options, seed=0) == levels
    assert generate_levels(**options, seed=1) != levels
    assert len({canonical(level) for level in levels}) == 50
    assert canonical("###/#@#/#$#/###") == canonical("####/#$@#/####")


def test_the_expert_solves_every_level_from_wherever_it_stands():
    env = SokobanEnv(split="test", expert=True)
    for number, task_id in enumerate(env.task_ids[:40]):
        _, info = env.reset(seed=number, options={"task_id": task_id})
        _, *_, info = env.step(info["admissible_actions"][-1])  # not always the best one
        for _ in range(40):
            if info["won"] or not info["expert_action"]:
                break
            *_, info = env.step(info["expert_action"])
        assert info["won"] or not info["expert_action"], task_id
    assert info["won"]


def test_a_stuck_box_is_no_end_and_the_expert_then_has_no_advice():
    env = SokobanEnv(split="all", expert=True)
    env.reset()
    env._level = Level.parse("#####/#-$-#/#-@.#/#####")
    env._state = env._level.start
    _, _, terminated, _, info = env.step("left")
    assert (terminated, info["won"], info["expert_action"]) == (False, False, "")
    observation, reward, _, _, info = env.step("left")
    assert observation.startswith("Nothing moves that way.\n# # # # #\n")
    assert (reward, info["action_valid"]) == (0.0, False)


def test_the_splits_are_fixed_and_apart():
    splits = {split: SokobanEnv(split=split).task_ids for split in ("train", "test", "all")}
    assert [len(splits[split]) for split in ("train", "test", "all")] == [205, 95, 300]
    assert set(splits["train"]) | set(splits["test"]) == set(splits["all"])
