"""BabyAIEnv: the Gymnasium environment."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal

from minigrid.core.world_object import Box, Door
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.utils.baby_ai_bot import BabyAIBot

from hgpo_gym.envs.babyai.levels import check_level, find_starts, make_start
from hgpo_gym.envs.babyai.milestones import locked_doors, reached
from hgpo_gym.envs.babyai.texts import Style, describe, name, things_by_direction, write
from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import SUCCESS_REWARD, Split, check_number_of_tasks, hashed, in_split
from hgpo_gym.option_checks import AtLeastOne, Range

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""In the order of minigrid's numbers."""

HeldOut = Literal["starts", "missions"]
Reward = Literal["success", "discounted"]
Admissible = Literal["all", "effective"]


class BabyAIEnv(TextEnv):
    """`hgpo_gym/BabyAI-v0`: reward 10 when the mission is done, else 0.

    A task id is the level and a seed, such as `GoToLocal-17`. Seeds that begin alike are one task.

    Args:
        level: one level or several: an id of minigrid without `BabyAI-` and version, or a kind of MixedTrainLocal, such
            as `mixed/goto`.
        split: `test` (about a third of the tasks, by a hash), `train` (the others) or `all`.
        held_out: what the hash is of. `starts`: the grid, the agent in it and the mission. `missions`: the mission
            alone, so that no mission of one split is one of the other.
        tasks: how many seeds of each level are drawn, both splits together.
        num_dists: objects in a level of MixedTrainLocal beside those of its mission: 8 in Carta et al. (2023), 0 in
            BALROG, at most 12. With more, hardly a draw leaves a way to all.
        style: `babyai_text` or `balrog`: sentences joined by commas, or lines without `You see`.
        admissible: `all` six actions, as published, or the `effective` ones, which change something.
        reward: `success` (10 or 0), or `discounted`: minigrid's 1 - 0.9 n / limit after n steps, by the level's own
            limit, and never below 0.
        level_limit: end an episode, not won, at the level's own limit (16 to 2,880 steps), as minigrid does. The limit
            of `max_episode_steps` holds too.
        expert: put the next action of minigrid's bot into `info["expert_action"]`; empty once the bot has given up,
            as when a box was opened.
        milestones: put into `info["milestone"]` whether the action reached a subgoal for the first time: an instruction
            of a sequence, the object to be put somewhere or the key in hand, a locked door open.
        describe_actions: put into `info["action_descriptions"]` what each admissible action acts on, for a turn and a
            step what is seen in that direction, and what is carried.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a level, split or other value that does not exist, a level that is not offered, or an empty split.
    """

    def __init__(
        self,
        *,
        level: str | Sequence[str] = "GoToLocal",
        split: Split = "train",
        held_out: HeldOut = "starts",
        tasks: AtLeastOne = 1000,
        num_dists: Annotated[int, Range(0, 12)] = 8,
        style: Style = "babyai_text",
        admissible: Admissible = "all",
        reward: Reward = "success",
        level_limit: bool = False,
        expert: bool = False,
        milestones: bool = False,
        describe_actions: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        levels = [level] if isinstance(level, str) else list(dict.fromkeys(level))
        for level_name in levels:
            check_level(level_name)
        check_number_of_tasks(f"tasks={tasks} of {len(levels)} levels", tasks * len(levels))
        self.split, self.texts_key = split, f"minigrid {version('minigrid')}"
        self._num_dists, self._style, self._discounted = num_dists, style, reward == "discounted"
        self._effective, self._level_limit = admissible == "effective", level_limit
        self._with_expert, self._with_milestones, self._with_descriptions = expert, milestones, describe_actions
        self.task_ids = tuple(
            f"{level_name}-{seed}"
            for level_name in levels
            for seed, start, mission in find_starts(level_name, tasks, num_dists)
            if in_split(split, hashed(mission if held_out == "missions" else start))
        )
        if not self.task_ids:
            raise ValueError(
                f"The split {split!r} of level={level} is empty. Set split=all or other tasks and held_out."
            )

    def task_type(self, task_id: str) -> str:
        """Return the level."""
        return task_id.rpartition("-")[0]

    def begin_episode(self, task_id: str) -> Turn:
        self._begin(task_id)
        return self._turn(milestone=False)

    def take_action(self, action: str) -> Turn:
        if action not in self._admissible_actions():
            return self._turn("That is not possible here.\n", milestone=False, action_valid=False)
        won, terminated, milestone = self._act(action)
        reward = (self._discount() if self._discounted else SUCCESS_REWARD) if won else 0.0
        return self._turn(milestone=milestone, reward=reward, terminated=terminated, won=won)

    def save_state(self) -> tuple[str, tuple[str, ...]]:
        """Return the task and the actions taken. `load_state` takes them again, which costs 10 us each, and with the
        expert 300 us."""
        return self.task_id, tuple(self._actions)

    def load_state(self, state: tuple[str, tuple[str, ...]]) -> None:
        task_id, actions = state
        self._begin(task_id)
        for action in actions:
            self._act(action)

    def _begin(self, task_id: str) -> None:
        level, _, seed = task_id.rpartition("-")
        self._level: RoomGridLevel = make_start(level, int(seed), self._num_dists)
        self._level._reward = lambda: 1.0  # type: ignore[method-assign]  # minigrid's may be 0 on success
        self._actions: list[str] = []
        self._locked = locked_doors(self._level)
        self._reached: frozenset[Any] = frozenset()
        self._bot = BabyAIBot(self._level) if self._with_expert else None
        self._advice = self._ask_bot(None)

    def _act(self, action: str) -> tuple[bool, bool, bool]:
        """Take an admissible action. Returns whether the mission is done, the episode over, a subgoal new."""
        number = ACTIONS.index(action)
        # minigrid's own limit, its fourth value, is not used: the limit is Gymnasium's, or `level_limit`.
        _, success, terminated, _, _ = self._level.step(number)
        self._actions.append(action)
        out_of_time = self._level_limit and self._level.step_count >= self._level.max_steps
        over = terminated or out_of_time
        self._advice = "" if over else self._ask_bot(number)
        before = self._reached
        if self._with_milestones:
            self._reached |= frozenset(reached(self._level, self._locked))
        return bool(success), over, bool(success) or self._reached != before

    def _ask_bot(self, action: int | None) -> str:
        """Tell the bot the action that was taken, and return the one that it takes next."""
        if self._bot is None:
            return ""
        try:
            number = int(self._bot.replan(action))
        except Exception:  # noqa: BLE001 - states that the bot does not expect end in errors of many kinds
            self._bot = None
            return ""
        return ACTIONS[number] if number < len(ACTIONS) else ""

    def _discount(self) -> float:
        return max(0.0, 1 - 0.9 * self._level.step_count / self._level.max_steps)

    def _admissible_actions(self) -> tuple[str, ...]:
        return tuple(filter(self._changes_something, ACTIONS)) if self._effective else ACTIONS

    def _changes_something(self, action: str) -> bool:
        front, carrying = self._front(), self._level.carrying
        if action == "go forward":
            return front is None or front.can_overlap()
        if action == "pick up":
            return carrying is None and front is not None and front.can_pickup()
        if action == "drop":
            return carrying is not None and front is None
        if action == "toggle":
            has_key = carrying is not None and (carrying.type, carrying.color) == ("key", getattr(front, "color", None))
            return isinstance(front, Box) or (isinstance(front, Door) and (not front.is_locked or has_key))
        return True

    def _front(self) -> Any:
        return self._level.grid.get(*self._level.front_pos)

    def _descriptions(self, actions: Sequence[str]) -> tuple[str, ...]:
        """Return for each action the thing that it acts on, or what is seen in its direction, and what is carried."""
        carrying = self._level.carrying
        ahead = name(self._front()) if self._front() else "nothing"
        things = {**dict.fromkeys(ACTIONS, ahead), **things_by_direction(self._level)}
        things["drop"] = name(carrying) if carrying else "nothing"
        prefix = f"carrying {name(carrying)}: " if carrying else ""
        return tuple(prefix + things[action] for action in actions)

    def _turn(self, prefix: str = "", *, milestone: bool, terminated: bool = False, **turn_fields: Any) -> Turn:
        actions = () if terminated else self._admissible_actions()
        extras: dict[str, Any] = {}
        if self._with_expert:
            extras["expert_action"] = self._advice
        if self._with_milestones:
            extras["milestone"] = milestone
        if self._with_descriptions:
            extras["action_descriptions"] = self._descriptions(actions)
        return Turn(
            prefix + write(describe(self._level), self._style),
            task=self._level.mission,
            admissible_actions=actions,
            terminated=terminated,
            extras=extras,
            **turn_fields,
        )
