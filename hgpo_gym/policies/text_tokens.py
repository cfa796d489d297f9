"""Prompts and responses as tokens of a language model: chat template, control tokens, and the longest prompt."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hgpo_gym.memory.tools import Tools
from hgpo_gym.policies.base import Request
from hgpo_gym.policies.chat_template import appended_tokens, at_date, check_prompts, parse_date, render
from hgpo_gym.policies.control_tokens import ControlTokens
from hgpo_gym.policies.conversation_tokens import ConversationTokens
from hgpo_gym.policies.response_ends import ResponseEnds, check_stops

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_Text = tuple[str, str, Tools | None, str]
"""A prompt, its template's text, its tools and the system's message before it, see `Request`."""
_PROMPT = "prompt 7391"
"""A prompt that no chat template contains."""


class TextTokens:
    """The tokens of prompts, and the ends of responses. It needs no model: engines of others use it too.

    Args:
        tokenizer: with a chat template, a prompt becomes the user's turn.
        max_prompt_tokens, chat_template_kwargs, template_date, stop, stop_token_ids: see `EngineSettings`. Of a longer
            prompt, `Request.shorter` is read.
        generation_ends: the end tokens of the model's `generation_config`.

    Attributes:
        end_token_ids: the tokens that end a free response: the one that the chat template puts after it, the
            tokenizer's, `generation_ends` and `stop_token_ids`.
        response_ends: these, and the texts of `stop`.
        end_of_text: the token that ends responses of `encode_response`: the chat template's, or else the tokenizer's.
        opened: the thought with which the chat template begins a response, see `Response`; responses continue it.

    Raises:
        ValueError: a tokenizer without an end-of-text token; a chat template that changes prompts, see
            `chat_template`; arguments for a template that does not exist; an invalid text or token to stop at.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_prompt_tokens: int,
        chat_template_kwargs: Mapping[str, Any],
        template_date: str | None,
        stop: Sequence[str],
        stop_token_ids: Sequence[int],
        generation_ends: Sequence[int] = (),
    ):
        check_stops(stop, stop_token_ids, len(tokenizer))
        if tokenizer.eos_token_id is None:
            raise ValueError(f"The tokenizer of {tokenizer.name_or_path!r} has no end-of-text token (eos_token).")
        self.tokenizer, self.max_prompt_tokens = tokenizer, max_prompt_tokens
        self.end_of_text: int = tokenizer.eos_token_id
        self.chat_template_kwargs = dict(chat_template_kwargs)
        self._shown_schemas = lru_cache(maxsize=16)(self._find_shown_schemas)
        self.opened, self._appended = "", 0 if tokenizer.chat_template else appended_tokens(tokenizer)
        parse_date(template_date)  # refuses a wrong date even without a template
        if tokenizer.chat_template is not None:
            self.chat_template_kwargs = at_date(tokenizer, self.chat_template_kwargs, template_date)
            self.opened = _opened(self._as_turn(_PROMPT))
        elif self.chat_template_kwargs:
            raise ValueError(
                f"engine.chat_template_kwargs={self.chat_template_kwargs}: the tokenizer of "
                f"{tokenizer.name_or_path!r} has no chat template."
            )
        self._controls = ControlTokens(tokenizer, self.chat_template_kwargs)
        if self._controls.end_of_turn is not None:
            self.end_of_text = self._controls.end_of_turn
        self.end_token_ids = frozenset([self.end_of_text, tokenizer.eos_token_id, *generation_ends, *stop_token_ids])
        self.response_ends = ResponseEnds(self.end_token_ids, tuple(stop), self._decode)
        if tokenizer.chat_template is not None:
            end_token_ids = self.end_token_ids.difference(stop_token_ids)
            check_prompts(
                tokenizer, self._as_turn, lambda prompt: self._tokenize([(prompt, None, "")])[0], end_token_ids
            )
        self._around = lru_cache(maxsize=16)(self._controls_around_prompts)
        self._response_ids = lru_cache(maxsize=100_000)(self._encode_response)
        self._turns = ConversationTokens(
            tokenizer, self.chat_template_kwargs, self._controls, self.opened, self.encode_response
        )

    def encode_prompts(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Return the prompts' tokens, int64[P] each, as the user's turn if the tokenizer has a chat template. Prompts
        that are too long lose their beginning."""
        return [ids for ids, _ in self.read_prompts([Request(prompt) for prompt in prompts])]

    def encode_response(self, response: str, literal_text: str = "") -> np.ndarray:
        """Return the response's tokens with the end-of-text token, int64[R]; `literal_text`: see `Request`."""
        return np.array((*self._response_ids(response, literal_text), self.end_of_text), dtype=np.int64)

    def _decode(self, token_ids: list[int]) -> str:
        """Return the text of all tokens: tags may be special tokens, and spaces belong to the response."""
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _encode(self, texts: Iterable[_Text]) -> dict[_Text, np.ndarray]:
        """Return the tokens int64[P] of each distinct prompt, without a limit of length."""
        distinct = list(dict.fromkeys(texts))
        encoded = self._tokenize([(prompt, tools, system) for prompt, _, tools, system in distinct])
        spelled = {}
        for text, ids in zip(distinct, encoded, strict=True):
            before, after = self._around(*text[2:])
            spelled[text] = np.array(self._controls.spelled_out(ids, text[1], before=before, after=after), np.int64)
        return spelled

    def _tokenize(self, prompts: Sequence[tuple[str, Tools | None, str]]) -> list[list[int]]:
        """Return the tokens of prompts with tools and a system's message, as turns of the user if there is a chat
        template."""
        templated = self.tokenizer.chat_template is not None
        texts = [
            self._as_turn(prompt, tools, system)
            if templated
            else system + (tools.instructions if tools else "") + prompt
            for prompt, tools, system in prompts
        ]
        encoded = self.tokenizer(texts, add_special_tokens=not templated, return_attention_mask=False)["input_ids"]
        return [ids[: len(ids) - self._appended] for ids in encoded]

    def _controls_around_prompts(self, tools: Tools | None, system: str) -> tuple[int, int]:
        """Return the numbers of control tokens before and after a prompt with these tools and this system's message."""
        (ids,) = self._tokenize([(_PROMPT, tools, system)])
        places = self._controls.places(ids)
        # Without a template, only the tokenizer adds control tokens, such as begin-of-text.
        before = int((places == np.arange(len(places))).sum())
        if self.tokenizer.chat_template is not None:
            beginning = self._as_turn(_PROMPT, tools, system).partition(_PROMPT)[0]
            before = len(self._controls.places(self.tokenizer(beginning, add_special_tokens=False)["input_ids"]))
        return before, len(places) - before

    def read_prompts(self, requests: Sequence[Request]) -> list[tuple[np.ndarray, bool]]:
        """Return each prompt's tokens, int64[at most max_prompt_tokens], and True if it had to be cut, or continues one
        that was. A prompt with earlier turns is the whole conversation."""
        texts = [(_opening(request), request.literal_text, request.tools, request.system) for request in requests]
        ids = self._encode(texts)
        cut = {
            text: self._cut(request)
            for text, request in zip(texts, requests, strict=True)
            if len(ids[text]) > self.max_prompt_tokens and not request.earlier
        }
        return [
            self._conversation(ids[text], request) if request.earlier else (cut.get(text, ids[text]), text in cut)
            for text, request in zip(texts, requests, strict=True)
        ]

    def _conversation(self, opening: np.ndarray, request: Request) -> tuple[np.ndarray, bool]:
        """Return as `read_prompts` the tokens of a request with earlier turns.

        Of a conversation that is too long, the oldest turns are left out until the rest takes at most half of
        `max_prompt_tokens`, so that the next prompts extend it. The rest begins with its first turn's `opening`.
        """
        turns, text, literal_text = request.earlier, request.prompt, request.literal_text
        ids = self._turns.prompt(opening, turns, text, literal_text)
        if len(ids) <= self.max_prompt_tokens:
            return ids, turns[-1].tokens is not None and turns[-1].tokens.prompt_cut

        def rest(start: int) -> np.ndarray:
            first = turns[start].opening, literal_text, request.tools, request.system
            return self._turns.rebuilt(self._encode([first])[first], turns[start:], text, literal_text)

        def fits(start: int) -> bool:
            return len(rest(start)) <= self.max_prompt_tokens // 2

        if (start := bisect_left(range(len(turns)), True, key=fits)) < len(turns):
            return rest(start), True
        ((ids, _),) = self.read_prompts([replace(request, prompt=request.opening, earlier=())])
        return ids, True

    def _cut(self, request: Request) -> np.ndarray:
        """Return int64[at most max_prompt_tokens]: the prompt with as many of its latest past steps as fit. If it is
        too long without any, the part between its task and its end is cut."""

        def encoded(prompt: str) -> np.ndarray:
            text = prompt, request.literal_text, request.tools, request.system
            return self._encode([text])[text]

        def fits(prompt: str) -> bool:
            return len(encoded(prompt)) <= self.max_prompt_tokens

        # The prompts of `shorter` get ever shorter, so that a binary search finds the first that fits.
        if (index := bisect_left(request.shorter, True, key=fits)) < len(request.shorter):
            return encoded(request.shorter[index])
        prompt = request.shorter[-1] if request.shorter else request.prompt
        shown = request.task and request.task in prompt  # without the task, only the end of the prompt is kept
        up_to_task = prompt[: prompt.index(request.task) + len(request.task)] if shown else ""
        whole = encoded(prompt)
        # The text up to the task may end in other tokens than within the whole prompt: keep the common ones.
        head = _common_beginning(whole, encoded(up_to_task), self.max_prompt_tokens // 2)
        return np.concatenate((whole[:head], whole[head - self.max_prompt_tokens :]))

    def _as_turn(self, prompt: str, tools: Tools | None = None, system: str = "") -> str:
        """Return a prompt as the user's turn. A chat template that does not show tools gets them in the prompt."""
        if tools is None:
            return self._turn(prompt, system)
        schemas = self._shown_schemas(tools)
        if schemas is None:
            return self._turn(tools.instructions + prompt, system)
        return self._turn(prompt, system, tools=schemas)

    def _find_shown_schemas(self, tools: Tools) -> list[dict[str, Any]] | None:
        """Return the functions for the chat template; None if it does not show them."""
        schemas: list[dict[str, Any]] = json.loads(tools.schemas)
        return None if self._turn(_PROMPT, tools=schemas) == self._turn(_PROMPT) else schemas

    def _turn(self, prompt: str, system: str = "", **more: Any) -> str:
        turns = [{"role": "system", "content": system}] if system else []
        turns.append({"role": "user", "content": prompt})
        return render(self.tokenizer, turns, self.chat_template_kwargs, add_generation_prompt=True, **more)

    def _encode_response(self, response: str, literal_text: str) -> tuple[int, ...]:
        ids = self.tokenizer(response.removeprefix(self.opened), add_special_tokens=False)["input_ids"]
        return tuple(self._controls.spelled_out(ids, literal_text))


def _opening(request: Request) -> str:
    """Return the text of the first prompt of a request's conversation."""
    return request.earlier[0].opening if request.earlier else request.prompt


def _common_beginning(ids: np.ndarray, other_ids: np.ndarray, limit: int) -> int:
    """Return the number of equal first tokens, at most `limit`."""
    length = min(len(ids), len(other_ids), limit)
    return int(np.argmin([*(ids[:length] == other_ids[:length]), False]))


def _opened(prompt: str) -> str:
    """Return the thought with which a rendered prompt begins the response, without spaces; "" if there is none."""
    end = re.search(r"<think>\s*(</think>)?\s*$", prompt)
    return "" if end is None else "<think>" + (end.group(1) or "")
