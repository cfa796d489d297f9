"""Player: the episode of one sub-environment, from the first prompt to the training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from numbers import Real
from typing import Any

import numpy as np

from hgpo_gym.memory.context import PastSteps, SplitPrompt, Written
from hgpo_gym.memory.keys import hash_text
from hgpo_gym.memory.notes import write_notes
from hgpo_gym.memory.prompts import PromptTemplate, ShorterPrompts
from hgpo_gym.memory.tools import MALFORMED_CALL
from hgpo_gym.policies.base import CannotRespondError, EarlierTurn, Request, Response, StepContext, TokenRecord
from hgpo_gym.rollouts.rollout import EpisodeOutcome, StepText
from hgpo_gym.rollouts.teams.base import Message, Team, keys_of_role
from hgpo_gym.rollouts.teams.compaction import MEMORY, Compaction, has_notes


class NotRecordedError(ValueError):
    """The environment's info lacks a column to record."""


@dataclass(slots=True, eq=False)
class StepRecord:
    """One response: its state, its text, and its reward. Branches share the records before them.

    Attributes:
        in_form: the response has the form that the prompt asks for.
        valid: false only if it was the turn's action, and the action was not valid or not in form.
        opening: the prompt with which a conversation would begin here; empty without one.
        carried: the text that the next prompt and response depend on, see `memory.response_prefix.ResponsePrefix`.
    """

    step: int
    turn: int
    agent: int
    keys: np.ndarray
    action: int
    tokens: TokenRecord | None
    text: StepText
    in_form: bool = True
    reward: float = 0.0
    valid: bool = True
    last_of_turn: bool = False
    extras: dict[str, Any] = field(default_factory=dict)
    opening: str = ""
    carried: str = ""


class Player:
    """The state of an episode: the current observation, the team's messages, and a row for every response.

    A turn is all messages between two environment steps: one response, or several by the roles of a team.

    Args:
        seed: of everything random in the responses.
        prompt: the first prompt.
        info: the first info.
        team: the roles that respond.
        record: names of numbers to record at every step, from the info after it.

    Attributes:
        rows: the responses.
        actions: the executed actions, one per turn.
        written: what was written in each finished turn.
        keys_of_turn: the context keys int64[K + 1] of the state at the start of each turn.
        states: the text of each context key of level 0, see `Context.state`.
        truncated: the step limit ended the episode.
    """

    def __init__(
        self, seed: tuple[int, ...], prompt: str, info: dict[str, Any], team: Team, record: Sequence[str] = ()
    ):
        self.rows: list[StepRecord] = []
        self.actions: list[str] = []
        self.written: list[Written] = []
        self.keys_of_turn: list[np.ndarray] = []
        self.states: dict[int, str] = {}
        self.truncated = False
        if info["context"].due is not None and not isinstance(team, Compaction):
            team = Compaction(team)
        self._first_info, self._seed, self._team, self._record = info, seed, team, record
        self._carried_messages: list[tuple[Message, ...]] = []
        self._step_contexts: list[StepContext] = []
        self._info: dict[str, Any]
        self._messages: tuple[Message, ...]
        self._role: str
        self._prompt_of_role = self._opening = ""
        self._choices: Sequence[str] = ()
        self._row_of_action: StepRecord | None
        self._begin_turn(prompt, info, ())

    def branch(
        self, turn: int, seed: tuple[int, ...], prompt: str, info: dict[str, Any], *, responses_given: int = 0
    ) -> "Player":
        """Return a new player that shares this episode up to the start of a turn.

        Args:
            turn: from 0, a turn that this player has begun.
            seed: of the new responses.
            prompt: of the turn.
            info: of the turn.
            responses_given: how many responses of the turn are shared too, fewer than it has.
        """
        branched = Player(seed, prompt, info, self._team, self._record)
        branched._first_info = self._first_info
        branched.rows, branched.actions = [row for row in self.rows if row.turn < turn], self.actions[:turn]
        branched.written = self.written[:turn]
        branched.keys_of_turn, branched._carried_messages = self.keys_of_turn[:turn], self._carried_messages[:turn]
        branched._step_contexts = self._step_contexts[:turn]
        branched.states = dict(self.states)
        branched._begin_turn(prompt, info, self._carried_messages[turn])
        # Copies: reward and validity of a shared response differ between branches.
        for row in [row for row in self.rows if row.turn == turn][:responses_given]:
            branched._take_in(replace(row, reward=0.0, valid=True, extras=dict(row.extras)))
        return branched

    @property
    def turn(self) -> int:
        """Return the number of finished turns."""
        return len(self.actions)

    @property
    def final_keys(self) -> np.ndarray:
        """Return the context keys int64[K + 1] of the current state, for the role that would respond next."""
        return self._keys(seen=False)

    @property
    def outcome(self) -> EpisodeOutcome:
        return EpisodeOutcome(
            task_id=self._first_info["task_id"],
            task_type=self._first_info["task_type"],
            won=bool(self._info["won"]),
            episode_return=float(sum(row.reward for row in self.rows)),
            steps=self.turn,
            valid_steps=self.turn - sum(not row.valid for row in self.rows),
        )

    @property
    def _carried(self) -> str:
        return self.rows[-1].carried if self.rows else ""

    def sampled_entropy(self, turn: int) -> float:
        """Return the sum of -log p over the sampled tokens of a turn: an unbiased estimate of its entropy.

        Raises:
            ValueError: the policy reports no tokens.
        """
        rows = [row for row in self.rows if row.turn == turn]
        return float(sum(-_logprobs(row.tokens).sum() for row in rows))

    def request(self, template: PromptTemplate) -> Request:
        """Return the next request to the policy.

        Raises:
            CannotRespondError: responses are numbers of actions, and there are no actions to number.
        """
        role = self._role
        choices = self._choices = self._team.allowed_responses(role, self._info["admissible_actions"], self._messages)
        if template.numbered and not choices and role != MEMORY:
            raise CannotRespondError(
                f"prompt.response={template.response!r} is the number of an action, and "
                f"{f'the role {role!r}' if role else 'this environment'} lists none: choose another prompt."
            )
        texts, meanings = template.list_responses(choices, self._carried)
        messages, carried = self._messages, self._carried

        def wrap(prompt: str) -> str:
            shown = template.prefix.show(self._team.prompt(role, prompt, messages), carried)
            return shown + template.notes_request if role == MEMORY else shown

        context, task, earlier = self._info["context"], self._info["task"], self._earlier_turns()
        if has_notes(messages):  # they replace the history
            context = context._replace(history=())
            self._prompt = template.render(task, context)
        if context.conversation:
            self._opening = wrap(template.render(task, context, opening=True))
        # A role that responds for the first time begins its conversation here, whatever the step.
        self._prompt_of_role = wrap(self._prompt) if earlier or not self._opening else self._opening
        return Request(
            prompt=self._prompt_of_role,
            allowed_responses=texts,
            expert_response=self._expert_response(template),
            seed=(*self._seed, len(self.rows)),
            task=task,
            context_keys=tuple(self._keys(seen=True).tolist()),
            role=role,
            choices=meanings,
            step_context=self._step_contexts[-1],
            team_messages=tuple(text for _, text in messages),
            literal_text=template.literal_text,
            tools=None if role == MEMORY else template.tools,
            system=template.system,
            shorter=ShorterPrompts(template, task, context, wrap),
            earlier=earlier,
            opening=self._opening,
        )

    def _earlier_turns(self) -> tuple[EarlierTurn, ...]:
        """Return the role's turns before the present one; none if prompts are no conversation."""
        if not self._info["context"].conversation:
            return ()
        agent = self._team.roles.index(self._role)
        return tuple(
            EarlierTurn(row.text.prompt, row.text.response, row.tokens, row.opening)
            for row in self.rows
            if row.agent == agent
        )

    def _expert_response(self, template: PromptTemplate) -> str | None:
        """Return the response of the environment's expert; None without one, or for a role that it does not play."""
        action = self._info.get("expert_action")
        if action is None or self._role not in (self._team.acting_role, MEMORY):
            return None
        carried = template.prefix.teach(self._carried, self._info.get("expert_notes"))
        return write_notes(carried) if self._role == MEMORY else template.write_response(action, carried, self._choices)

    def on_response(self, template: PromptTemplate, response: Response) -> str | None:
        """Take in the policy's response. Return the action if the turn is over, None if another role responds next."""
        action, in_form = template.read(response.text, self._choices, response.opened)
        prefix = template.prefix.read(response.text, self._carried, alone=self._role == MEMORY)
        acts = self._role == self._team.acting_role
        # A role that does not act may respond in free text: without a parsed action, its whole text is its message.
        called = not action.startswith(MALFORMED_CALL)
        words = action if acts else (called and action) or response.text.strip()
        row = StepRecord(
            step=len(self.rows),
            turn=self.turn,
            agent=self._team.roles.index(self._role),
            keys=self._keys(seen=False),
            action=hash_text(words),
            tokens=response.tokens,
            in_form=in_form and prefix.in_form,
            text=StepText(
                self._info["task"],
                self._info["observation"],
                self._info["admissible_actions"],
                words,
                self._info.get("expert_action") if acts else None,
                self._kept_prompt(template),
                response.text,
                response.truncated,
                self._info.get("action_descriptions", ()),
                self._carried if template.notes else "",
                self._info.get("expert_notes"),
            ),
            extras=dict(prefix.columns),
            opening=self._opening,
            carried=prefix.carried,
        )
        return self._take_in(row)

    def _kept_prompt(self, template: PromptTemplate) -> str | SplitPrompt:
        """Return the prompt as rows keep it, see `SplitPrompt`."""
        history = self._info["context"].history
        if isinstance(history, PastSteps):
            return history.split(self._prompt_of_role, template.past_step)
        return self._prompt_of_role

    def _take_in(self, row: StepRecord) -> str | None:
        """Append the row of a response. Return as `on_response` does."""
        self.rows.append(row)
        if self._role == self._team.acting_role:
            self._row_of_action = row
        self._messages = (*self._messages, Message(self._role, row.text.action))
        if (role := self._team.next(self._messages, self._info)) is None:
            if self._row_of_action is None:
                raise ValueError(
                    f"{type(self._team).__name__}: the turn is over and the acting role {self._team.acting_role!r} has "
                    "not responded. next() has to return it first."
                )
            self.actions.append(self._row_of_action.text.action)
            self.written.append(self._written())
            return self.actions[-1]
        self._role = role
        return None

    def _written(self) -> Written:
        """Return what was written in the turn that has just ended."""
        # From the end, so that a turn costs the same late in a long episode.
        rows = list(takewhile(lambda row: row.turn == len(self.written), reversed(self.rows)))
        texts = [row.text.response for row in reversed(rows)]
        tokens = self.rows[-1].tokens
        return Written(texts, 0 if tokens is None else len(tokens.prompt_ids) + len(tokens.token_ids))

    def on_step(self, prompt: str, reward: float, truncated: bool, info: dict[str, Any]) -> None:
        """Take in the result of the action, and begin the next turn."""
        assert self._row_of_action is not None
        self._row_of_action.valid = self._row_of_action.in_form and bool(info["action_valid"])
        # The reward belongs to the turn's last response, which need not be the action.
        last = self.rows[-1]
        last.reward, last.last_of_turn = reward, True
        last.extras |= {name: number_of_step(info, name) for name in self._record}
        self.truncated = truncated
        self._begin_turn(prompt, info, tuple(self._team.keep(self._messages, self.turn - 1)))

    def _begin_turn(self, prompt: str, info: dict[str, Any], messages: tuple[Message, ...]) -> None:
        self._prompt, self._info, self._messages = prompt, info, messages
        self._row_of_action = None
        self._step_contexts.append(self._step_context(info))
        self._carried_messages.append(messages)
        self.keys_of_turn.append(info["context_keys"])
        self.states[int(info["context_keys"][0])] = info["context"].state
        role = self._team.next(messages, info)
        if role is None:
            raise ValueError(f"{type(self._team).__name__}: next() returns None at the beginning of a turn.")
        self._role = role

    def _step_context(self, info: dict[str, Any]) -> StepContext:
        before, action = (self._step_contexts[-1], self.actions[-1]) if self.actions else (None, "")
        descriptions = info.get("action_descriptions", ())
        return StepContext(info["task"], info["observation"], info["admissible_actions"], descriptions, before, action)

    def _keys(self, *, seen: bool) -> np.ndarray:
        """Return the context keys int64[K + 1] of the row, or, if `seen`, of all that the role has read."""
        keys = self._info["context_keys"]
        if self._role == self._team.acting_role and not (seen and self._messages):
            return keys
        return keys_of_role(keys, self._role, self._messages)


def number_of_step(info: Mapping[str, Any], name: str, by: str = "rollout.record, an estimator or a shaping") -> Any:
    """Return the number in an environment's info for a column that a setting asks for.

    Raises:
        NotRecordedError: the info lacks it, or it is not a number.
    """
    if name not in info:
        raise NotRecordedError(
            f"{by}: the column {name!r} is recorded of the environment's info after a step, which has no {name!r}. "
            "Switch it on in the environment (env.*), or leave it out; there is "
            f"{', '.join(sorted(info))}."
        )
    if not isinstance(info[name], Real | np.bool_):
        raise NotRecordedError(f"{by}: info[{name!r}] is {info[name]!r}; a column holds numbers.")
    return info[name]


def _logprobs(tokens: TokenRecord | None) -> np.ndarray:
    """Return the log-probabilities float64[R] of a response's tokens."""
    if tokens is None:
        raise ValueError("branch_at=entropy: this policy reports no tokens.")
    return tokens.logprobs.astype(np.float64)
