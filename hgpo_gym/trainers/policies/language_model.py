"""A Hugging Face causal language model as a policy."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import transformers

from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.likelihood import likelihood
from hgpo_gym.trainers.policies.base import Likelihood, Request, Response, Sampling, TokenRecord
from hgpo_gym.trainers.policies.batching import length_sorted_batches
from hgpo_gym.trainers.policies.models import save_model
from hgpo_gym.trainers.policies.sampling import draw, mask_logits, uniform_numbers
from hgpo_gym.trainers.policies.trie import TokenTrie

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CONSTRAINTS = ("none", "admissible")


class LanguageModelPolicy:
    """Generates with a causal language model, batched by length.

    Args:
        model: any causal language model of transformers, on its device.
        tokenizer: its tokenizer; where it has a chat template, the prompt is put as the user's turn.
        constrain: `none`, or `admissible`: every answer is one of the request's, drawn from the model's distribution
            over them; the recorded log-probabilities are taken under the same mask.
        max_batch_tokens: padded tokens in one forward pass.
        max_prompt_tokens: longer prompts lose their beginning.

    Raises:
        ValueError: an unknown constraint, a tokenizer without an end-of-text token.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        constrain: str = "none",
        max_batch_tokens: int = 16384,
        max_prompt_tokens: int = 4096,
    ):
        if constrain not in CONSTRAINTS:
            raise ValueError(unknown_name("constrain", constrain, CONSTRAINTS))
        if tokenizer.eos_token_id is None:
            raise ValueError(f"The tokenizer of {tokenizer.name_or_path!r} has no end-of-text token (eos_token).")
        self.model, self.tokenizer, self.constrain = model, tokenizer, constrain
        self.max_batch_tokens, self.max_prompt_tokens = max_batch_tokens, max_prompt_tokens
        self.end_of_text: int = tokenizer.eos_token_id
        self._answer_ids = lru_cache(maxsize=100_000)(self._encode_answer)
        self._trie = lru_cache(maxsize=10_000)(self._build_trie)

    def encode_prompt(self, prompt: str) -> np.ndarray:
        """int64[P]: the prompt's tokens, as the user's turn of a chat where the tokenizer has a template."""
        if self.tokenizer.chat_template is not None:
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
            )
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = self.tokenizer(prompt)["input_ids"]
        return np.array(ids[-self.max_prompt_tokens :], dtype=np.int64)

    def encode_answer(self, answer: str) -> np.ndarray:
        """int64[R]: the answer's tokens and the end-of-text token."""
        return np.array((*self._answer_ids(answer), self.end_of_text), dtype=np.int64)

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """One response a request, in order; each depends on its own seed, not on what it is batched with."""
        prompts = [self.encode_prompt(request.prompt) for request in requests]
        writings = [
            _Writing(prompt, self._trie_of(request), uniform_numbers(request.seed, sampling.max_new_tokens))
            for prompt, request in zip(prompts, requests, strict=True)
        ]
        for writing in writings:
            writing.take_forced()
        waiting = [writing for writing in writings if not writing.done]
        self.model.eval()
        for batch in length_sorted_batches([len(writing.prompt_ids) for writing in waiting], self.max_batch_tokens):
            self._write([waiting[index] for index in batch], sampling)
        return [self._response(writing) for writing in writings]

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        """See `TrainablePolicy`; under the constraint that the records were drawn with."""
        return likelihood(self.model, records, temperature=temperature)

    def save(self, folder: Path) -> None:
        """A plain Hugging Face folder; `load_model` reads it."""
        save_model(self.model, self.tokenizer, folder)

    def _write(self, batch: "list[_Writing]", sampling: Sampling) -> None:
        """Generate until every answer of the batch has ended."""
        device = self.model.device
        longest = len(batch[0].prompt_ids)
        ids = np.full((len(batch), longest), self.end_of_text, dtype=np.int64)
        mask = np.zeros((len(batch), longest), dtype=np.int64)
        for row, writing in enumerate(batch):
            ids[row, longest - len(writing.prompt_ids) :] = writing.prompt_ids
            mask[row, longest - len(writing.prompt_ids) :] = 1
        attention = torch.from_numpy(mask).to(device)
        inputs = torch.from_numpy(ids).to(device)
        positions = (attention.cumsum(1) - 1).clamp(min=0)
        cache = transformers.DynamicCache(config=self.model.config)
        while True:
            logits = self.model(
                input_ids=inputs,
                attention_mask=attention,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            self._draw(batch, logits.float(), sampling)
            going = [row for row, writing in enumerate(batch) if not writing.done]
            if not going:
                return
            if len(going) < len(batch):
                rows = torch.tensor(going, device=device)
                cache.batch_select_indices(rows)
                attention, positions = attention[rows], positions[rows]
                batch = [batch[row] for row in going]
            inputs = torch.tensor([[writing.token_ids[-1]] for writing in batch], device=device)
            attention = torch.cat((attention, attention.new_ones(len(batch), 1)), dim=1)
            positions = positions[:, -1:] + 1

    def _draw(self, batch: "list[_Writing]", logits: torch.Tensor, sampling: Sampling) -> None:
        """Draw the next token of every answer of the batch."""
        logits = mask_logits(logits, [writing.allowed() for writing in batch])
        tokens, logprobs = draw(logits, sampling, np.array([writing.next_uniform() for writing in batch]))
        for writing, token, logprob in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
            writing.append(token, logprob)
            writing.take_forced()
            writing.done |= token == self.end_of_text or len(writing.token_ids) >= sampling.max_new_tokens

    def _response(self, writing: "_Writing") -> Response:
        record = writing.record()
        return Response(str(self.tokenizer.decode(record.token_ids, skip_special_tokens=True)), record)

    def _trie_of(self, request: Request) -> TokenTrie | None:
        if self.constrain == "none":
            return None
        if not request.answers:
            raise ValueError(
                "engine.constrain=admissible needs admissible actions, and this environment lists none: set "
                "engine.constrain=none."
            )
        return self._trie(request.answers)

    def _build_trie(self, answers: tuple[str, ...]) -> TokenTrie:
        return TokenTrie((self._answer_ids(answer) for answer in answers), self.end_of_text)

    def _encode_answer(self, answer: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(answer, add_special_tokens=False)["input_ids"])


class _Writing:
    """One answer while it is being generated."""

    def __init__(self, prompt_ids: np.ndarray, trie: TokenTrie | None, uniforms: np.ndarray):
        self.prompt_ids = prompt_ids
        self.token_ids: list[int] = []
        self.done = False
        self._trie, self._node = trie, 0
        self._uniforms = uniforms
        self._logprobs: list[float] = []
        self._allowed: list[np.ndarray] = []

    def allowed(self) -> np.ndarray | None:
        return self._trie.allowed(self._node) if self._trie else None

    def next_uniform(self) -> float:
        return self._uniforms[len(self.token_ids)]

    def append(self, token: int, logprob: float) -> None:
        if self._trie:
            self._allowed.append(self._trie.allowed(self._node))
            self._node = self._trie.child(self._node, token)
        self.token_ids.append(token)
        self._logprobs.append(logprob)

    def take_forced(self) -> None:
        """Finish the answer without the model if only one is left."""
        if self._trie and (rest := self._trie.forced(self._node)):
            for token in rest:
                self.append(token, 0.0)
            self.done = True

    def record(self) -> TokenRecord:
        return TokenRecord(
            self.prompt_ids,
            np.array(self.token_ids, dtype=np.int64),
            np.array(self._logprobs, dtype=np.float32),
            tuple(self._allowed) if self._trie else None,
        )
