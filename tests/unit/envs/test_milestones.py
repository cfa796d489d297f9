"""`info["milestone"]`: whether an action brought the task to its next subgoal."""

import pytest

from hgpo_gym.envs import check_text_env
from hgpo_gym.envs.alfworld.milestones import Milestones
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.sokoban.env import SokobanEnv

ALFWORLD = {"id": "hgpo_gym/ALFWorld-v0", "split": "generated_test"}
WEBSHOP = {"id": "hgpo_gym/WebShop-v0", "split": "generated_test"}


def milestones(env, task_id):
    """The first words of the expert's actions that reach a milestone."""
    _, info = env.reset(options={"task_id": task_id})
    assert info["milestone"] is False
    reached, ended = [], False
    while not ended:
        action = info["expert_action"]
        _, _, ended, _, info = env.step(action)
        if info["milestone"]:
            reached.append(action.partition("[")[0].split()[0])
    return reached


@pytest.mark.parametrize(
    ("task_type", "expected"),
    [
        ("pick_and_place_simple", ["take", "move"]),
        ("look_at_obj_in_light", ["take", "use"]),
        ("pick_clean_then_place_in_recep", ["take", "clean", "move"]),
        ("pick_heat_then_place_in_recep", ["take", "heat", "move"]),
        ("pick_cool_then_place_in_recep", ["take", "cool", "move"]),
        ("pick_two_obj_and_place", ["take", "move", "take", "move"]),
    ],
)
def test_alfworlds_milestones_are_its_subgoals(task_type, expected):
    env = make(**ALFWORLD, milestones=True, expert=True, expert_policy="planner").unwrapped
    tasks = [task_id for task_id in env.task_ids if task_id.startswith(task_type)][:3]
    assert [milestones(env, task_id) for task_id in tasks] == [expected] * 3


def test_other_things_are_no_milestones_and_none_is_reached_twice():
    progress = Milestones.of("put a clean apple in diningtable.")
    for feedback in ("You pick up the egg 1 from the fridge 1.", "You clean the apple 1 using the sinkbasin 1."):
        assert progress.after(feedback, won=False) == progress  # not the next one
    holding = progress.after("You pick up the apple 2 from the fridge 1.", won=False)
    assert holding.reached == 1
    assert holding.after("You pick up the apple 2 from the countertop 1.", won=False) == holding
    assert holding.after("You heat the apple 2 using the microwave 1.", won=False) == holding
    assert holding.after("You move the apple 2 to the diningtable 1.", won=True).reached == 3


def test_taking_back_what_was_put_down_is_not_taking_the_second():
    progress = Milestones.of("find two apple and put them in diningtable.")
    for feedback, reached in (
        ("You pick up the apple 1 from the fridge 1.", 1),
        ("You move the apple 1 to the diningtable 1.", 2),
        ("You pick up the apple 1 from the diningtable 1.", 2),
        ("You move the apple 1 to the diningtable 1.", 2),
        ("You pick up the apple 2 from the fridge 1.", 3),
    ):
        progress = progress.after(feedback, won=False)
        assert progress.reached == reached


def test_sokobans_milestones_are_boxes_nearer_to_their_goals_than_ever():
    env = SokobanEnv(milestones=True)
    env.task_ids = ("########/#@-$--.#/#------#/########",)

    def walk(text):
        return [env.step(action)[-1]["milestone"] for action in text.split()]

    env.reset()
    assert walk("right right right right") == [False, True, True, True]  # the first brings the player to the box
    env.reset()
    assert walk("right right") == [False, True]
    assert not any(walk("down right right up left"))  # the box is where it began
    snapshot = env.snapshot()
    env.reset()
    env.restore(snapshot)
    assert walk("down left left up right right") == [False] * 5 + [True]  # it was that near before, then nearer


def test_webshops_milestones_are_its_phases():
    env = make(**WEBSHOP, milestones=True).unwrapped
    _, info = env.reset(seed=0)
    output = [info["milestone"]]
    for action in ("search[projector]", "click[back to search]", "search[projector]"):
        *_, info = env.step(action)
        output.append(info["milestone"])
    for _ in range(2):  # two products
        *_, info = env.step(next(action for action in info["admissible_actions"] if action.startswith("click[gen")))
        output.append(info["milestone"])
        *_, info = env.step("click[< prev]")
    env.step(next(action for action in info["admissible_actions"] if action.startswith("click[gen")))
    *_, info = env.step("click[buy now]")
    assert output == [False, True, False, False, True, False]
    assert info["milestone"] is True  # the purchase, right or wrong


@pytest.mark.parametrize(
    "options", [{**ALFWORLD, "task_types": ["pick_two_obj_and_place"]}, WEBSHOP, {"id": "hgpo_gym/Sokoban-v0"}]
)
def test_with_milestones_the_contract_holds_and_without_none_are_reported(options):
    check_text_env(make(**options, milestones=True))
    _, info = make(**options).reset(seed=0)
    assert "milestone" not in info
