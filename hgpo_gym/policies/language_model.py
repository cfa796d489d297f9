"""A Hugging Face causal language model as a policy.

Methods import transformers at their first use: this module checks every run's settings, also those of a table policy.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from pydantic import PositiveInt

from hgpo_gym.policies.answer_ends import AnswerEnds, check_stops
from hgpo_gym.policies.base import CannotAnswerError, Likelihood, Request, Response, Sampling, TokenRecord
from hgpo_gym.policies.batching import by_adapter
from hgpo_gym.policies.chat_template import appended_tokens, at_date, check_prompts, parse_date, render
from hgpo_gym.policies.control_tokens import ControlTokens
from hgpo_gym.policies.likelihood import computing_in, likelihood
from hgpo_gym.policies.lora import named_adapters, use_adapter
from hgpo_gym.policies.positions import check_length
from hgpo_gym.policies.sampling import uniform_numbers
from hgpo_gym.policies.states import hidden_states, state_size
from hgpo_gym.policies.trie import TokenTrie
from hgpo_gym.suggest import unknown_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hgpo_gym.policies.generation import GeneratedSequence
    from hgpo_gym.policies.vllm_requests import Stopped

Constraint = Literal["none", "admissible"]
Precision = Literal["float32", "bfloat16"]
_Text = tuple[str, str]
"""A prompt, and its template's text, see `Request.literal_text`."""
_PROMPT = "prompt 7391"
"""A prompt that no chat template contains."""
CONSTRAINTS, PRECISIONS = get_args(Constraint), get_args(Precision)


class LanguageModelPolicy:
    """Generates with a causal language model, see `generation`.

    Args:
        model: any causal language model of transformers, on its device.
        tokenizer: its tokenizer; with a chat template, the prompt becomes the user's turn.
        constrain: `none`, or `admissible`: every response is one of the request's, drawn from the model's distribution
            over them. The recorded log-probabilities have the same mask.
        max_batch_tokens: padded tokens of prompts in one forward pass.
        max_cache_tokens: padded tokens in the cache, of prompts and the longest responses.
        max_prompt_tokens: the most tokens of a prompt; of a longer one, `Request.shorter` is read.
        chat_template_kwargs: further arguments of the chat template, such as {"enable_thinking": False} of Qwen3.
        template_date: the day for a chat template that shows the date, like 2026-11-28; None is today.
        precision: the format of generation, `float32` (as the weights are) or `bfloat16`.
        stop: a free response ends when it contains one of these texts, which it keeps.
        stop_token_ids: further tokens that end a free response.

    Attributes:
        ends: the tokens that end a free response: the one that the chat template puts after it, the tokenizer's,
            those of the model's `generation_config`, and `stop_token_ids`.
        end_of_text: the token that ends the responses of `encode_answer`: the chat template's, or else the tokenizer's.
        opened: the thought with which the chat template begins a response, see `Response`; responses continue it.

    Raises:
        ValueError: an unknown constraint or precision; a tokenizer without an end-of-text token; a chat template that
            changes prompts, see `chat_template`; arguments for a template that does not exist; an invalid text or token
            to stop at.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        constrain: Constraint = "none",
        max_batch_tokens: PositiveInt = 16384,
        max_cache_tokens: PositiveInt = 65536,
        max_prompt_tokens: PositiveInt = 4096,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        template_date: str | None = None,
        precision: Precision = "float32",
        stop: Sequence[str] = (),
        stop_token_ids: Sequence[int] = (),
    ):
        from hgpo_gym.policies.generation import SequenceGenerator

        if constrain not in CONSTRAINTS:
            raise ValueError(unknown_name("constrain", constrain, CONSTRAINTS))
        if precision not in PRECISIONS:
            raise ValueError(unknown_name("precision", precision, PRECISIONS))
        check_stops(stop, stop_token_ids, len(tokenizer))
        if tokenizer.eos_token_id is None:
            raise ValueError(f"The tokenizer of {tokenizer.name_or_path!r} has no end-of-text token (eos_token).")
        self.model, self.tokenizer, self.constrain = model, tokenizer, constrain
        self.max_prompt_tokens, self.precision = max_prompt_tokens, precision
        self.end_of_text: int = tokenizer.eos_token_id
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
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
        self.ends = frozenset([self.end_of_text, tokenizer.eos_token_id, *_generation_ends(model), *stop_token_ids])
        self._ends = AnswerEnds(self.ends, tuple(stop), self._decode)
        if tokenizer.chat_template is not None:
            ends = self.ends.difference(stop_token_ids)
            check_prompts(tokenizer, self._as_turn, lambda prompt: self._put([prompt])[0], ends)
        self._around = self._controls_around_prompts()
        self._generator = SequenceGenerator(model, max_batch_tokens=max_batch_tokens, max_cache_tokens=max_cache_tokens)
        self._answer_ids = lru_cache(maxsize=100_000)(self._encode_answer)
        self._trie = lru_cache(maxsize=10_000)(self._build_trie)

    def encode_prompts(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Return the prompts' tokens, int64[P] each, as the user's turn if the tokenizer has a chat template. Prompts
        that are too long lose their beginning."""
        return [ids for ids, _ in self._read([Request(prompt) for prompt in prompts])]

    def encode_answer(self, answer: str, literal_text: str = "") -> np.ndarray:
        """Return the response's tokens with the end-of-text token, int64[R]; `literal_text`: see `Request`."""
        return np.array((*self._answer_ids(answer, literal_text), self.end_of_text), dtype=np.int64)

    def records(self, requests: Sequence[Request], answers: Sequence[str]) -> list[TokenRecord]:
        """Return the records of given responses, under this policy's constraint; log-probabilities are 0.

        Raises:
            KeyError: a response that the constraint does not allow.
        """
        records = []
        for (prompt, cut), request, answer in zip(self._read(requests), requests, answers, strict=True):
            ids, trie = self.encode_answer(answer, request.literal_text), self._trie_of(request)
            allowed = None if trie is None else trie.along(ids.tolist())
            records.append(TokenRecord(prompt, ids, np.zeros(len(ids), dtype=np.float32), allowed, prompt_cut=cut))
        return records

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response for each request, in order. Each depends on its own seed, not on the batch."""
        sequences = self.begin(requests, sampling)
        self.model.eval()
        # Not inference mode: there autocast keeps no casts, and would cast the weights again for every token.
        with torch.no_grad(), computing_in(self.precision, self.model):
            for group in by_adapter(sequences, lambda sequence: sequence.adapter):
                if group and group[0].adapter is not None:
                    use_adapter(self.model, group[0].adapter)
                self._generator.generate([sequence for sequence in group if not sequence.done], sampling)
        return self.responses(sequences)

    def begin(self, requests: Sequence[Request], sampling: Sampling) -> "list[GeneratedSequence]":
        """Return the responses to be written; those with a single admissible text are done. In a trie, a response may
        be longer than `max_new_tokens`.

        Raises:
            ValueError: prompt and response could be longer than the model's positions.
            CannotAnswerError: a constrained request without responses to choose among.
        """
        from hgpo_gym.policies.generation import GeneratedSequence

        check_length(self.model, self.max_prompt_tokens, sampling.max_new_tokens)
        tries = [self._trie_of(request) for request in requests]
        return [
            GeneratedSequence(
                prompt,
                trie,
                uniform_numbers(request.seed, max(sampling.max_new_tokens, trie.depth if trie else 0)),
                self._ends,
                self._adapter_of(request),
                prompt_cut=cut,
            )
            for request, trie, (prompt, cut) in zip(requests, tries, self._read(requests), strict=True)
        ]

    def responses(self, sequences: "Sequence[GeneratedSequence]") -> list[Response]:
        """Return the responses. One that was chosen from a trie is the request's text, verbatim."""
        return [
            Response(
                self._ends.text(sequence.token_ids) if sequence.chosen is None else sequence.chosen,
                sequence.record(),
                sequence.cut_off,
                self.opened,
            )
            for sequence in sequences
        ]

    @property
    def stopped(self) -> "Stopped | None":
        """The check whether a free response's tokens have reached a text that ends it; None if only tokens can end one,
        which the engine stops at by itself."""
        return self._ends.reached if self._ends.strings else None

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float, sums: bool = False) -> Likelihood:
        """Return the likelihood under the constraint of the records, see `TrainablePolicy`.

        Raises:
            ValueError: records of several adapters.
        """
        adapter, *more_adapters = {record.adapter for record in records}
        if more_adapters:
            raise ValueError("likelihood: records of several adapters; ask for those of one at a time, see by_adapter.")
        if adapter is not None:
            use_adapter(self.model, adapter)
        return likelihood(self.model, records, temperature=temperature, sums=sums)

    @property
    def state_size(self) -> int:
        """See `StateReader`."""
        return state_size(self.model)

    def states(
        self, records: Sequence[TokenRecord], answered: Sequence[int], *, max_batch_tokens: int, precision: str
    ) -> np.ndarray:
        """Return the last hidden states, float32[N, state_size], each by its record's adapter; see `StateReader`."""
        states = np.zeros((len(records), self.state_size), dtype=np.float32)
        for group in by_adapter(range(len(records)), lambda index: records[index].adapter):
            if group and (adapter := records[group[0]].adapter) is not None:
                use_adapter(self.model, adapter)
            states[group] = hidden_states(
                self.model,
                [records[index] for index in group],
                [answered[index] for index in group],
                max_batch_tokens=max_batch_tokens,
                precision=precision,
            )
        return states

    def tokens_within(self, record: TokenRecord, characters: int) -> int:
        """Return the number of first tokens that cover so many characters of the response."""
        low, high = 0, len(record.token_ids)
        while low < high:
            middle = (low + high) // 2
            text = self._decode(record.token_ids[:middle].tolist())
            low, high = (middle + 1, high) if len(text) < characters else (low, middle)
        return low

    def updated(self) -> None:
        """Do nothing: the policy generates with the model itself."""

    def save(self, folder: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
        """Write a plain Hugging Face folder, which `load_model` reads."""
        from hgpo_gym.policies.huggingface import save_model

        save_model(self.model, self.tokenizer, folder, weights)

    def _decode(self, token_ids: list[int]) -> str:
        """Return the text of all tokens: tags may be special tokens, and spaces belong to the response."""
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _adapter_of(self, request: Request) -> str | None:
        adapters = named_adapters(self.model)
        if adapters and request.role not in adapters:
            raise CannotAnswerError(
                f"The role {request.role!r} has no adapter: this model has those of {', '.join(adapters)}. Choose the "
                "team that it was trained as."
            )
        return request.role if adapters else None

    def _encode(self, texts: Iterable[_Text]) -> dict[_Text, np.ndarray]:
        """Return the tokens int64[P] of each distinct prompt, without a limit of length."""
        distinct = list(dict.fromkeys(texts))
        encoded = self._put([prompt for prompt, _ in distinct])
        before, after = self._around
        return {
            text: np.array(self._controls.spelled_out(ids, text[1], before=before, after=after), dtype=np.int64)
            for text, ids in zip(distinct, encoded, strict=True)
        }

    def _put(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of prompts, as turns of the user if there is a chat template."""
        templated = self.tokenizer.chat_template is not None
        texts = [self._as_turn(prompt) for prompt in prompts] if templated else list(prompts)
        encoded = self.tokenizer(texts, add_special_tokens=not templated, return_attention_mask=False)["input_ids"]
        return [ids[: len(ids) - self._appended] for ids in encoded]

    def _controls_around_prompts(self) -> tuple[int, int]:
        """Return the numbers of control tokens before and after a prompt."""
        (ids,) = self._put([_PROMPT])
        places = self._controls.places(ids)
        # Without a template, only the tokenizer adds control tokens, such as begin-of-text.
        before = int((places == np.arange(len(places))).sum())
        if self.tokenizer.chat_template is not None:
            beginning = self._as_turn(_PROMPT).partition(_PROMPT)[0]
            before = len(self._controls.places(self.tokenizer(beginning, add_special_tokens=False)["input_ids"]))
        return before, len(places) - before

    def _read(self, requests: Sequence[Request]) -> list[tuple[np.ndarray, bool]]:
        """Return each prompt's tokens, int64[at most max_prompt_tokens], and True if it had to be cut."""
        texts = [(request.prompt, request.literal_text) for request in requests]
        ids = self._encode(texts)
        cut = {
            text: self._cut(request)
            for text, request in zip(texts, requests, strict=True)
            if len(ids[text]) > self.max_prompt_tokens
        }
        return [(cut.get(text, ids[text]), text in cut) for text in texts]

    def _cut(self, request: Request) -> np.ndarray:
        """Return int64[at most max_prompt_tokens]: the prompt with as many of its latest past steps as fit. If it is
        too long without any, the part between its task and its end is cut."""

        def encoded(prompt: str) -> np.ndarray:
            return self._encode([(prompt, request.literal_text)])[prompt, request.literal_text]

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

    def _as_turn(self, prompt: str) -> str:
        turn = [{"role": "user", "content": prompt}]
        return render(self.tokenizer, turn, self.chat_template_kwargs, add_generation_prompt=True)

    def _trie_of(self, request: Request) -> TokenTrie | None:
        if self.constrain == "none":
            return None
        if not request.answers:
            raise CannotAnswerError(
                "engine.constrain=admissible needs answers to choose among, and "
                f"{f'the role {request.role!r}' if request.role else 'this environment'} lists none: set "
                "engine.constrain=none."
            )
        return self._trie(request.answers, request.literal_text)

    def _build_trie(self, answers: tuple[str, ...], literal_text: str) -> TokenTrie:
        sequences = [self._answer_ids(answer, literal_text) for answer in answers]
        return TokenTrie(sequences, self.end_of_text, [answer.removeprefix(self.opened) for answer in answers])

    def _encode_answer(self, answer: str, literal_text: str) -> tuple[int, ...]:
        ids = self.tokenizer(answer.removeprefix(self.opened), add_special_tokens=False)["input_ids"]
        return tuple(self._controls.spelled_out(ids, literal_text))


def _common_beginning(ids: np.ndarray, other_ids: np.ndarray, most: int) -> int:
    """Return the number of equal first tokens, at most `most`."""
    length = min(len(ids), len(other_ids), most)
    return int(np.argmin([*(ids[:length] == other_ids[:length]), False]))


def _opened(prompt: str) -> str:
    """Return the thought with which a rendered prompt begins the response, without spaces; "" if there is none."""
    end = re.search(r"<think>\s*(</think>)?\s*$", prompt)
    return "" if end is None else "<think>" + (end.group(1) or "")


def _generation_ends(model: Any) -> list[int]:
    """Return the end tokens of the model's `generation_config`; some models end a chat turn by another token than the
    tokenizer's."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
