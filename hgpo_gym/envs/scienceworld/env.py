"""ScienceWorldEnv: the Gymnasium environment."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.scienceworld import actions as grammar
from hgpo_gym.envs.scienceworld.expert import Expert, translated
from hgpo_gym.envs.scienceworld.game import (
    Questions,
    Simulation,
    SimulationState,
    SimulatorError,
    SimulatorState,
    TaskVariation,
    gold_path,
)
from hgpo_gym.envs.scienceworld.tasks import Split, check_simplifications, is_electrical, parse_task_id, task_ids
from hgpo_gym.envs.splits import SUCCESS_REWARD

Actions = Literal["free", "valid", "seen"]
Observation = Literal["feedback", "full"]
Reward = Literal["success", "score"]

LONGEST_ACTION = 1000
"""Characters of an action that is sent to the simulator."""
WON = 100


class _Episode(NamedTuple):
    """State of an episode, beside the game's."""

    simulator: SimulatorState
    best: int
    expert: Expert | None
    advice: str
    admissible: tuple[str, ...]


class ScienceWorldEnv(TextEnv):
    """`hgpo_gym/ScienceWorld-v0`: experiments of elementary science, in ScienceWorld's own simulator.

    All environments of a process share one Java virtual machine, which ends when the last of them is closed. If it dies
    or hangs, another one replays their episodes. `info["score"]` is the simulator's score: 0 to 100, or negative after
    an error that cannot be made good, which ends the episode.

    Args:
        split: `train`, `dev` or `test` as the simulator splits the variations of each task type, or `all`.
        tasks: names of task types, such as `boil` (`tasks.VARIATIONS`); None plays all 30.
        simplifications: `easy`, or names of `tasks.SIMPLIFICATIONS`, joined by commas or in a list.
        actions: `free`: any text goes to the simulator, and `info` has `action_templates` and `objects`. `valid`: the
            thousands that the simulator lists. `seen`: those of them whose objects are named in the task, the room or
            the inventory, at most 300, for models that can only choose.
        observation: `feedback`, the simulator's answer; or `full`, which adds the room and the inventory.
        reward: `success` (10 at score 100, else 0) or `score` (the change of the score, divided by 100).
        parity: with `actions="free"`, also list the valid actions at each step, in `info["valid_actions"]`. The list
            draws random numbers: only with it chance is that of ScienceWorld's Python wrapper.
        describe_actions: put into `info["action_descriptions"]` what the numbers stand for, by which the question
            is answered which of several objects is meant; empty for other actions.
        expert: put the next action of the simulator's solution into `info["expert_action"]`; empty after another action
            that takes time, and where no admissible action says the same.
        milestones: put into `info["milestone"]` whether the action raised the score above the highest so far.
        render_mode: `ansi` or None.

    Raises:
        FileNotFoundError: an episode begins, and there is no Java.
        ValueError: an option that does not exist, or a simplification that a task type does not allow.
    """

    max_text_length = 1 << 16

    def __init__(
        self,
        *,
        split: Split = "train",
        tasks: str | Sequence[str] | None = None,
        simplifications: str | Sequence[str] = "",
        actions: Actions = "free",
        observation: Observation = "feedback",
        reward: Reward = "success",
        parity: bool = False,
        describe_actions: bool = False,
        expert: bool = False,
        milestones: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        self.split, self.task_ids = split, task_ids(split, tasks)
        self._simplifications = check_simplifications(simplifications, sorted(map(self.task_type, self.task_ids)))
        self.texts_key = f"scienceworld {version('scienceworld')}"
        self._actions, self._observation, self._reward = actions, observation, reward
        self._parity, self._describes = parity, describe_actions
        self._has_expert, self._has_milestones = expert, milestones
        self._game = Simulation(
            Questions(
                surroundings=actions == "seen" or observation == "full",
                actions=parity or actions != "free",
                vocabulary=actions == "free",
            )
        )

    def task_type(self, task_id: str) -> str:
        """Return the name of the task type, such as `boil`."""
        return parse_task_id(task_id)[0]

    def begin_episode(self, task_id: str) -> Turn:
        task = TaskVariation(*parse_task_id(task_id), self._simplifications)
        expert = Expert(gold_path(task)) if self._has_expert else None
        state = self._game.begin(task, references=self._translates(expert))
        self._description = self._game.description()
        self._episode = self._after(state, state.score, expert)
        return self._turn(task=self._description)

    def take_action(self, action: str) -> Turn:
        if len(action) > LONGEST_ACTION or (self._actions != "free" and action not in self._episode.admissible):
            return self._turn("That is not possible here.", action_valid=False)
        before = self._episode
        expert = before.expert and before.expert.after(action, before.advice)
        try:
            state = self._game.act(action, references=self._translates(expert))
        except SimulatorError:
            return self._turn("That cannot be read.", action_valid=False)
        valid = not state.text.startswith(grammar.NOT_UNDERSTOOD)
        if not valid and not before.simulator.text.startswith(grammar.AMBIGUOUS):
            expert = before.expert
        self._episode = self._after(state, before.best, expert)
        gain = state.score - before.simulator.score
        return self._turn(
            action_valid=valid,
            reward=gain / WON if self._reward == "score" else SUCCESS_REWARD * (state.score == WON),
            milestone=state.score > before.best,
        )

    def save_state(self) -> tuple[SimulationState, str, _Episode]:
        """Return the actions that were sent, and the latest turn. The first action after `load_state` replays them."""
        return self._game.save(), self._description, self._episode

    def load_state(self, state: tuple[SimulationState, str, _Episode]) -> None:
        game, self._description, self._episode = state
        self._game.load(game)

    def close(self) -> None:
        self._game.close()

    def _translates(self, expert: Expert | None) -> bool:
        """Return whether the expert's next action has to be found among the admissible ones."""
        return self._actions != "free" and expert is not None and bool(expert.next_action)

    def _after(self, state: SimulatorState, best: int, expert: Expert | None) -> _Episode:
        admissible: tuple[str, ...] = ()
        if self._actions != "free":
            admissible = tuple(dict.fromkeys(state.actions))
        if self._actions == "seen" and not state.text.startswith(grammar.AMBIGUOUS):
            room, goal = f"{state.text}\n{state.look}", f"{self._description}\n{state.inventory}"
            name, _ = parse_task_id(self.task_id)
            admissible = grammar.seen_actions(admissible, room, goal, electrical=is_electrical(name))
        advice = expert.next_action if expert else ""
        if expert and self._actions != "free":
            expert, advice = translated(expert, state, admissible)
        return _Episode(state, max(best, state.score), expert, advice, admissible)

    def _turn(self, refusal: str = "", *, milestone: bool = False, **turn_fields: Any) -> Turn:
        state, _, _, advice, admissible = self._episode
        over = state.completed or state.score < 0 or state.score >= WON
        if over:
            admissible = ()
        extras: dict[str, Any] = {"score": state.score}
        if self._actions == "free":
            extras |= {"action_templates": state.templates, "objects": state.objects}
        if self._parity:
            extras["valid_actions"] = state.actions
        if self._describes:
            meanings = grammar.choices(state.text)
            extras["action_descriptions"] = tuple(meanings.get(action, "") for action in admissible)
        if self._has_expert:
            extras["expert_action"] = "" if over else advice
        if self._has_milestones:
            extras["milestone"] = milestone
        return Turn(
            refusal or self._text(state),
            admissible_actions=admissible,
            terminated=over,
            won=state.score >= WON,
            extras=extras,
            **turn_fields,
        )

    def _text(self, state: SimulatorState) -> str:
        parts = [state.text]
        if self._observation == "full":
            parts += [part for part in (state.look, state.inventory) if part != state.text]
        return "\n\n".join(parts)[: self.max_text_length]
