"""WebShop (Yao et al., NeurIPS 2022): find and buy a product that fits an instruction."""

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Annotated, Any, NamedTuple

from gymnasium.error import ResetNeeded

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import SUCCESS_REWARD
from hgpo_gym.extras import requires_extra
from hgpo_gym.option_checks import OneOf

with requires_extra("webshop", "WebShop"):
    from hgpo_gym.envs.webshop.experts import SHOPPING_TASKS, SeenPages, advise
    from hgpo_gym.envs.webshop.goals.goal import Goal, complete_goal
    from hgpo_gym.envs.webshop.goals.goal_list import GoalIds
    from hgpo_gym.envs.webshop.goals.queries import suggested_queries
    from hgpo_gym.envs.webshop.shop.nouns import NOUNS
    from hgpo_gym.envs.webshop.shop.pages import (
        OBSERVATION_MODES,
        SEARCH,
        ShopPage,
        ShopState,
        describe_clickables,
        draw_page,
    )
    from hgpo_gym.envs.webshop.shop.rules import SEARCH_TEMPLATE, Shop
    from hgpo_gym.envs.webshop.shop.scoring import OPTION_MATCHING
    from hgpo_gym.envs.webshop.splits import open_split

REWARDS = {
    "success": lambda score: SUCCESS_REWARD if score == 1 else 0.0,
    "score": lambda score: score,
}
"""The reward of a purchase from its score, by name."""
QUERIES: dict[str, Callable[[str], tuple[str, ...]]] = {
    "free": lambda instruction: (SEARCH_TEMPLATE,),  # noqa: ARG005 - the same for every instruction
    "suggested": lambda instruction: tuple(f"search[{query}]" for query in suggested_queries(instruction)),
}
"""Admissible actions of the search page from the instruction, by name."""


class _ShopState(NamedTuple):
    """State of an episode, the expert's notes, and the number of phases reached."""

    state: ShopState
    notes: SeenPages
    phase: int


class WebShopEnv(TextEnv):
    """A shop of a thousand to a million real products, an instruction, and one purchase.

    Actions are `search[words]`, possible on every page, and `click[...]` on a product, an option or a button of the
    page. Buying ends the episode. `info` then has `score`, 0 to 1, `score_parts`, and `nouns`, the noun finder that the
    score depends on. Pages, actions, goals, search results and scores are those of WebShop's own text environment. An
    action that is not understood, or not possible on the page, changes nothing: the page is shown again and
    `info["action_valid"]` is False.

    `reset(options=)` accepts `task_id`; or `goal_index`, the position of a goal in the whole list, in any split; or
    `goal`, a user-defined goal in the benchmark's format, see `goal.complete_goal`.

    Args:
        data: the folder of WebShop's files; see `sources.find_sources`. None: $WEBSHOP_DATA, else ~/.cache/webshop.
        split: which goals are played: `train`, `validation`, `eval`, `test` or `all`, see `goal_list.split_positions`;
            `generated` or `generated_test`, on generated products, which need no data; or several, the first that there
            is: see `splits.open_split`.
        goals: `human` (written by people) or `synthetic` (made from the products' attributes and options).
        catalogue_seed: of the products' prices and the goals' price limits; 0 gives those of this project's tests.
        observation_mode: `text`, the page's texts with [SEP] between them, or `text_rich`, lines and marked buttons.
        show_attributes: whether a product has a page with the attributes that decide on the score.
        reward: `success`, 10 if the score is 1, else 0; or `score`, the score itself.
        option_matching: `original`, or `corrected`; see `scoring.goal_option_original`.
        queries: admissible actions of the search page: `free`, the template `search[<your query>]`; or `suggested`, a
            few searches made from the instruction, for models that can only choose. Any search is possible with both.
        describe_actions: put a description of each admissible action into `info["action_descriptions"]`: title and
            price of a product, the kind of an option; empty for others.
        expert: put the next action of an expert in `info["expert_action"]`; see `expert`.
        expert_policy: `informed` knows the goal's attributes and options; `reader` knows only the instruction. Neither
            knows the product.
        milestones: put into `info["milestone"]` whether the action reached a new phase of the episode: results, a
            product, a chosen option, the purchase, right or wrong.
        nouns: what finds nouns in titles: `words`, or `spacy`, which needs spaCy and its model en_core_web_sm.
        render_mode: None or `ansi`.

    Attributes:
        catalogue: the products; `catalogue.search(query, limit)` gives ranked ids.
        goals: all goals, in order.

    Raises:
        FileNotFoundError: WebShop's files are not there.
        OSError: the catalogue, built when it is first used, cannot be written.
        ValueError: an unknown option, a file that is damaged, or a split without goals.
    """

    max_text_length = 1 << 16
    reset_options = frozenset({"task_id", "goal_index", "goal"})

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        split: str | Sequence[str] = ("train", "generated"),
        goals: str = "human",
        catalogue_seed: int = 0,
        observation_mode: Annotated[str, OneOf(OBSERVATION_MODES)] = "text",
        show_attributes: bool = False,
        reward: Annotated[str, OneOf(REWARDS)] = "success",
        option_matching: Annotated[str, OneOf(OPTION_MATCHING)] = "original",
        nouns: Annotated[str, OneOf(NOUNS)] = "words",
        queries: Annotated[str, OneOf(QUERIES)] = "free",
        describe_actions: bool = False,
        expert: bool = False,
        expert_policy: Annotated[str, OneOf(SHOPPING_TASKS)] = "informed",
        milestones: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        self.split, self.catalogue, self.goals, self._positions = open_split(data, split, goals, catalogue_seed)
        self.task_ids: Sequence[str] = GoalIds(self.goals, self._positions)
        self.texts_key = self.catalogue.key
        self._shop = Shop(self.catalogue, self.goals.prices, NOUNS[nouns], OPTION_MATCHING[option_matching])
        self._page_options: dict[str, Any] = {"show_attributes": show_attributes, "observation_mode": observation_mode}
        self._reward = REWARDS[reward]
        self._nouns = nouns
        NOUNS[nouns]("")  # what is missing is missed now, not at the first purchase
        self._searches = QUERIES[queries]
        self._make_task = SHOPPING_TASKS[expert_policy] if expert else None
        self._notes = SeenPages()
        self._milestones, self._phase = milestones, 0
        self._goal: Goal | None = None
        self._state: ShopState | None = None
        self._page = ShopPage("", ())
        self._admissible: tuple[str, ...] = ()
        self._descriptions: tuple[str, ...] = ()
        self._describes = describe_actions

    @property
    def state(self) -> ShopState:
        """State of the shop."""
        if self._state is None:
            raise ResetNeeded("There is no episode yet: call reset().")
        return self._state

    def task_type(self, task_id: str) -> str:
        """Return the department of the goal's product, e.g. `beauty`."""
        return task_id.rsplit("-", 3)[0]

    def choose_task(self, options: Mapping[str, Any]) -> str:
        """Also takes `goal_index` and `goal`."""
        if len(options) > 1:
            raise ValueError(f"reset options {' and '.join(map(repr, sorted(options)))} all name a goal: give one.")
        if "goal" in options:
            self._goal = complete_goal(options["goal"], self.catalogue)
            return f"{self._goal.category}-{self._goal.asin}-own-{self._goal.digest}"
        position = self._listed_goal(**options)
        self._goal = self.goals[position]
        return self.goals.goal_id(position)

    def begin_episode(self, task_id: str) -> Turn:  # noqa: ARG002 - choose_task has the goal
        assert self._goal is not None
        self._notes, self._phase = SeenPages(), 0
        return self._show(ShopState(self._goal))

    def take_action(self, action: str) -> Turn:
        state = self._shop.act(self.state, self._page, action)
        return self._show(self.state, action_valid=False) if state is None else self._show(state)

    def save_state(self) -> _ShopState:
        return _ShopState(self.state, self._notes, self._phase)

    def load_state(self, state: _ShopState) -> None:
        self._notes, self._phase = state.notes, state.phase
        self._show(state.state)

    def _listed_goal(self, task_id: str | None = None, goal_index: int | None = None) -> int:
        """Return the position of the goal that the options name, or of one drawn uniformly from the split."""
        if goal_index is not None:
            if not isinstance(goal_index, Integral) or not 0 <= goal_index < len(self.goals):
                raise ValueError(f"goal_index={goal_index!r}: give a whole number from 0 to {len(self.goals) - 1}.")
            return int(goal_index)
        if task_id is None:
            return self._positions[int(self.np_random.integers(len(self._positions)))]
        position = self.goals.find(task_id) if isinstance(task_id, str) else None
        if position is None or position not in self._positions:
            raise ValueError(
                f"Unknown task_id {task_id!r} in the split {self.split!r}, whose first is {self.task_ids[0]!r}. An id "
                "depends on the options goals and catalogue_seed."
            )
        return position

    def _show(self, state: ShopState, *, action_valid: bool = True) -> Turn:
        if state is not self._state:
            self._state, self._page = state, draw_page(state, self.catalogue, **self._page_options)
            self._admissible, self._descriptions = self._actions(state), self._describe(state)
        score = state.score
        extras: dict[str, Any] = {}
        if self._describes:
            extras["action_descriptions"] = self._descriptions
        if score:
            extras |= {"score": score.value, "score_parts": score.parts, "nouns": self._nouns}
        if self._milestones:
            extras["milestone"] = state.phase > self._phase
            self._phase = max(self._phase, state.phase)
        if self._make_task:
            extras["expert_action"] = self._advice(state)
        return Turn(
            # The longest product descriptions go beyond what the observation space holds.
            self._page.text[: self.max_text_length],
            task=state.goal.instruction,
            admissible_actions=self._admissible,
            reward=self._reward(score.value) if score else 0.0,
            terminated=score is not None,
            won=score is not None and score.value == 1,
            action_valid=action_valid,
            extras=extras,
        )

    def _actions(self, state: ShopState) -> tuple[str, ...]:
        if state.page == SEARCH:
            return self._searches(state.goal.instruction)
        return tuple(f"click[{text}]" for text in self._page.clickables)

    def _describe(self, state: ShopState) -> tuple[str, ...]:
        if not self._describes:
            return ()
        if state.page == SEARCH:
            return ("",) * len(self._actions(state))
        return describe_clickables(state, self._page, self.catalogue)

    def _advice(self, state: ShopState) -> str:
        """Return the expert's next action; an empty text after the purchase."""
        assert self._make_task
        self._notes = self._notes.after(state)
        return "" if state.score else advise(self._make_task(state.goal), self._notes, state, self.catalogue)
