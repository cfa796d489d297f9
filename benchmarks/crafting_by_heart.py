"""TextCraft without its list of commands: recipes have to be learned, and what is carried has to be remembered.

The task names the goal alone, and `craft ITEM` stands for the whole command, so that prompts and responses are short.
Replies tell only what the last action did. An expert's notes list what is carried.
"""

from dataclasses import replace
from typing import Annotated, Any

import hgpo_gym as hg
from hgpo_gym.envs.base import Turn
from hgpo_gym.envs.textcraft.env import TextCraftEnv
from hgpo_gym.envs.textcraft.game import made_or_got
from hgpo_gym.envs.textcraft.recipes import plain
from hgpo_gym.option_checks import Range


class CraftingByHeart(TextCraftEnv):
    """TextCraft with generated recipes that are not shown.

    Args:
        depth: levels of crafting of the goals.
        goals: how many goals, 1 to 12.
        mistakes: the probability that the expert takes a random action.
        expert: put the plan's next action into `info["expert_action"]`, and what is carried into
            `info["expert_notes"]`.
    """

    def __init__(
        self,
        *,
        depth: Annotated[int, Range(1, 8)] = 2,
        goals: Annotated[int, Range(1, 12)] = 6,
        mistakes: Annotated[float, Range(0, 1)] = 0.3,
        expert: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(
            recipes="generated", depth=depth, split="test", actions="free", expert=expert, render_mode=render_mode
        )
        self.task_ids = self.task_ids[:goals]
        self._mistakes = mistakes

    def begin_episode(self, task_id: str) -> Turn:
        goal = replace(super().begin_episode(task_id), observation="You carry nothing.")
        return replace(goal, task=self._task_text.rsplit("\n", 1)[-1])

    def take_action(self, action: str) -> Turn:
        commands = {_short(command): command for command in reversed(self._admissible_actions())}
        return super().take_action(commands.get(action, action))

    def _turn(self, text: str, **turn_fields: Any) -> Turn:
        turn = super()._turn(text, **turn_fields)
        if turn.terminated:
            return turn
        actions = tuple(dict.fromkeys(map(_short, self._admissible_actions())))
        extras = {}
        if self._with_expert:
            errs = self.np_random.random() < self._mistakes
            action = str(self.np_random.choice(actions)) if errs else _short(turn.extras["expert_action"])
            carried = ", ".join(f"{count} {plain(item)}" for item, count in self._inventory.items() if count)
            extras = {"expert_action": action, "expert_notes": carried or "nothing"}
        return replace(turn, admissible_actions=actions, extras=extras)


def _short(command: str) -> str:
    """Return `craft ITEM` for a command that crafts, and other commands unchanged."""
    return f"craft {plain(made_or_got(command))}" if command.startswith("craft") else command


hg.register(
    "benchmarks/CraftingByHeart-v0",
    CraftingByHeart,
    max_episode_steps=30,
    description="TextCraft without its list of commands.",
)
