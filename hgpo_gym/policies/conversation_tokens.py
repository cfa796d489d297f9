"""The tokens of a conversation: a prompt that continues earlier prompts and responses without tokenising them again."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hgpo_gym.policies.base import EarlierTurn
from hgpo_gym.policies.chat_template import render
from hgpo_gym.policies.control_tokens import ControlTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROMPT, _RESPONSE = "prompt 7391", "answer 7391"
"""Texts that no chat template contains."""
_REMEDY = "Set memory=window, or save the tokenizer with a template of your own (chat_template.jinja)."
_THOUGHT = "note 7391</think>\n\n" + _RESPONSE


class ConversationTokens:
    """Appends turns to the tokens of a conversation.

    A chat template may show an earlier response as it was generated, or in another form, such as without its thought.
    In the first case the generated tokens stay, and the prompt extends the last one. In the second case the prompt
    shows what the template makes of the response, and is no extension.

    Args:
        tokenizer: any; without a chat template the texts follow one another.
        chat_template_kwargs: further arguments of the chat template.
        controls: its control tokens.
        opened: the thought with which the chat template begins a response, see `Response`.
        encode_response: returns the tokens int64[R] of a response whose tokens are not known, and `literal_text`.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        chat_template_kwargs: Mapping[str, Any],
        controls: ControlTokens,
        opened: str,
        encode_response: Callable[[str, str], np.ndarray],
    ):
        self._tokenizer, self._options, self._controls = tokenizer, chat_template_kwargs, controls
        self._opened, self._encode_response = opened, encode_response
        self._after = lru_cache(maxsize=10_000)(self._encode_after)
        self._reshown = lru_cache(maxsize=10_000)(self._encode_reshown)

    def prompt(
        self, opening: np.ndarray, turns: Sequence[EarlierTurn], prompt: str, literal_text: str = ""
    ) -> np.ndarray:
        """Return the tokens int64[P] of a conversation.

        Args:
            opening: the tokens of its first prompt.
            turns: its earlier turns; the prompt of the first is in `opening`.
            prompt: the text of the present turn.
            literal_text: see `Request`.
        """
        last = turns[-1]
        if last.tokens is not None and self._stays(last.response):
            return self._extended(last.tokens.prompt_ids, last, prompt, literal_text)
        return self.rebuilt(opening, turns, prompt, literal_text)

    def rebuilt(
        self, opening: np.ndarray, turns: Sequence[EarlierTurn], prompt: str, literal_text: str = ""
    ) -> np.ndarray:
        """Return the tokens as `prompt` does, put together from all turns: for a conversation that has lost some."""
        ids = opening
        for turn, later in zip(turns, (*(turn.prompt for turn in turns[1:]), prompt), strict=True):
            if self._stays(turn.response):
                ids = self._extended(ids, turn, later, literal_text)
            else:
                # The beginning of a response, such as an opened thought, is not shown before an earlier one.
                begun = len(ids) - len(self._beginning)
                ids = np.concatenate((ids[:begun], self._reshown(turn.response, later, literal_text), self._beginning))
        return ids

    def _extended(self, ids: np.ndarray, turn: EarlierTurn, prompt: str, literal_text: str) -> np.ndarray:
        """Return the tokens of a prompt, of its response as it was generated, and of the next turn."""
        response = self._encode_response(turn.response, literal_text) if turn.tokens is None else turn.tokens.token_ids
        after, turn_ends = self._after(prompt, literal_text)
        # A response that was truncated, or ended by a text, lacks the token with which the template ends it.
        ended = len(response) > 0 and response[-1] == self._controls.end_of_turn
        return np.concatenate((ids, response, after[turn_ends if ended else 0 :]))

    def _stays(self, response: str) -> bool:
        """Return True if the chat template shows an earlier response as it was generated."""
        return self._shown_whole[0] and ("</think>" not in response or self._shown_whole[1])

    @cached_property
    def _shown_whole(self) -> tuple[bool, bool]:
        """Whether the chat template shows an earlier response as it was generated: one without, and with a thought."""
        if self._tokenizer.chat_template is None:
            return True, True
        thought = _THOUGHT if self._opened else "<think>" + _THOUGHT
        begun = self._render(add_generation_prompt=True)
        shown = [self._render(response, _PROMPT) for response in (_RESPONSE, thought)]
        # Some templates, such as Mistral's, put a space before the response, which the model writes itself.
        plain, whole = (
            text.startswith(begun) and text.removeprefix(begun).lstrip().startswith(response)
            for text, response in zip(shown, (_RESPONSE, thought), strict=True)
        )
        return plain, whole

    @cached_property
    def _beginning(self) -> np.ndarray:
        """The tokens int64[B] with which the chat template begins a response.

        Raises:
            ValueError: they are not the last tokens of a prompt, or the template changes a turn when others follow.
        """
        begun = self._render(add_generation_prompt=True)
        ids, whole = self._tokenize(begun.removeprefix(self._first)), self._tokenize(begun)
        if not begun.startswith(self._first) or whole[len(whole) - len(ids) :] != ids:
            raise ValueError(
                f"The tokenizer of {self._tokenizer.name_or_path!r} has other tokens for the beginning of a response "
                f"than within a prompt, so that earlier turns cannot be shown again. {_REMEDY}"
            )
        return np.array(ids, dtype=np.int64)

    @cached_property
    def _first(self) -> str:
        """A first turn, rendered without the beginning of a response.

        Raises:
            ValueError: the template changes it when others follow.
        """
        first = self._render()
        if not self._render(_RESPONSE, _PROMPT).startswith(first):
            raise ValueError(
                f"The chat template of {self._tokenizer.name_or_path!r} changes the first turn of a conversation when "
                f"others follow, so that it cannot be continued. {_REMEDY}"
            )
        return first

    def _encode_after(self, prompt: str, literal_text: str) -> tuple[np.ndarray, int]:
        """Return the tokens int64[A] from the end of a response to the beginning of the next, and the number of them up
        to the token that ends the response."""
        if self._tokenizer.chat_template is None:
            return np.array(self._controls.spelled_out(self._tokenize(prompt), literal_text), dtype=np.int64), 0

        def after(prompt: str) -> str:
            return self._render(_RESPONSE, prompt, add_generation_prompt=True).partition(_RESPONSE)[2]

        before, _, behind = after(_PROMPT).rpartition(_PROMPT)
        ids = self._written(after(prompt), before, behind, literal_text)
        turn_ends = np.flatnonzero(ids[: len(self._tokenize(before))] == self._controls.end_of_turn)
        return ids, int(turn_ends[0]) + 1 if len(turn_ends) else 0

    def _encode_reshown(self, response: str, prompt: str, literal_text: str) -> np.ndarray:
        """Return the tokens int64[A] of an earlier response as the template shows it, and of the turn after it."""
        before, _, behind = self._render(response, _PROMPT).removeprefix(self._first).rpartition(_PROMPT)
        text = self._render(response, prompt).removeprefix(self._first)
        return self._written(text, before, behind, literal_text)

    def _written(self, text: str, before: str, after: str, literal_text: str) -> np.ndarray:
        """Return the tokens of a text in which the control tokens of `before` and `after` alone are control tokens."""
        counts = {
            name: len(self._controls.places(self._tokenize(part)))
            for name, part in (("before", before), ("after", after))
        }
        return np.array(self._controls.spelled_out(self._tokenize(text), literal_text, **counts), dtype=np.int64)

    def _render(self, *texts: str, **more: Any) -> str:
        """Return a conversation that begins with `_PROMPT`; `texts` are of the assistant and the user in turn."""
        roles = ("user", *("assistant", "user") * (len(texts) // 2 + 1))
        turns = [{"role": role, "content": text} for role, text in zip(roles, (_PROMPT, *texts), strict=False)]
        return render(self._tokenizer, turns, self._options, **more)

    def _tokenize(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False, return_attention_mask=False)["input_ids"]
