"""Generation of many responses side by side.

Prompts are read in batches of similar length, each distinct prompt once. Tokens are drawn for all responses together,
whatever the lengths of their prompts. When some responses have ended, those of the next prompts join the batch.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers.cache_utils import Cache

from hgpo_gym.policies.base import Sampling, TokenRecord
from hgpo_gym.policies.batching import length_sorted_batches
from hgpo_gym.policies.kv_cache import ReadLayer, Rows, join
from hgpo_gym.policies.likelihood import head_logits
from hgpo_gym.policies.prefix_cache import Prefix, PrefixCache
from hgpo_gym.policies.response_ends import ResponseEnds
from hgpo_gym.policies.sampling import draw, restrict
from hgpo_gym.policies.trie import TokenTrie

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_ENDED = 0.1
"""Rows of ended responses are removed when they exceed this share of a batch, because removal copies all other rows."""


class GeneratedSequence:
    """One response in progress.

    Args:
        prompt_ids: int64[P].
        trie: the responses to choose from; None for free text.
        uniforms: float64[longest response], the uniform numbers that its tokens are drawn by.
        response_ends: the tokens and texts that end it, without a trie.
        adapter: the adapter that writes it; None if the model has one or none.
        prompt_cut: the prompt was shortened.
        begins_with: the lengths of earlier turns' tokens that the prompt may begin with, longest first.
        goes_on: a later prompt may begin with its tokens.
    """

    def __init__(
        self,
        prompt_ids: np.ndarray,
        trie: TokenTrie | None,
        uniforms: np.ndarray,
        response_ends: ResponseEnds,
        adapter: str | None = None,
        *,
        prompt_cut: bool = False,
        begins_with: Sequence[int] = (),
        goes_on: bool = False,
    ):
        self.prompt_ids, self.adapter, self.prompt_cut = prompt_ids, adapter, prompt_cut
        self.begins_with, self.goes_on, self.prompt_cached = begins_with, goes_on, 0
        self.token_ids: list[int] = []
        self.num_computed_tokens = 0  # its tokens whose keys and values are in a cache
        self.done = self._ended = False
        self.trie, self._node = trie, 0
        self._uniforms, self._response_ends = uniforms, response_ends
        self._logprobs: list[float] = []
        self._allowed: list[np.ndarray] = []
        self._take_forced()

    @property
    def cached(self) -> int:
        """The number of its tokens that the model has read: all but the last."""
        return len(self.prompt_ids) + len(self.token_ids) - 1

    @property
    def longest(self) -> int:
        """The most tokens that it can have."""
        return len(self._uniforms)

    def allowed(self) -> np.ndarray | None:
        """Return the tokens that may come next, int64[A]; None for all."""
        return self.trie.allowed(self._node) if self.trie else None

    def next_uniform(self) -> float:
        return self._uniforms[len(self.token_ids)]

    def append(self, token: int, logprob: float) -> None:
        """Add a drawn token, and the rest of the response if only one continuation remains."""
        self._append(token, logprob)
        self._ended = self.chosen is not None if self.trie else self._response_ends.reached(self.token_ids)
        self.done = self._ended or len(self.token_ids) >= self.longest
        self._take_forced()

    @property
    def chosen(self) -> str | None:
        """The complete text that it has reached in the trie; None without one."""
        return self.trie.text(self._node) if self.trie else None

    @property
    def truncated(self) -> bool:
        """True if it is done without a token or text that ends it."""
        return self.done and not self._ended

    def record(self) -> TokenRecord:
        return TokenRecord(
            self.prompt_ids,
            np.array(self.token_ids, dtype=np.int64),
            np.array(self._logprobs, dtype=np.float32),
            tuple(self._allowed) if self.trie else None,
            self.adapter,
            self.prompt_cut,
            self.prompt_cached,
        )

    def _append(self, token: int, logprob: float) -> None:
        if self.trie:
            self._allowed.append(self.trie.allowed(self._node))
            self._node = self.trie.child(self._node, token)
        self.token_ids.append(token)
        self._logprobs.append(logprob)

    def _take_forced(self) -> None:
        # A forced rest needs no forward pass: each of its tokens has probability 1.
        if self.trie and (rest := self.trie.forced(self._node)):
            for token in rest:
                self._append(token, 0.0)
            self.done = self._ended = True


class _Prompt(NamedTuple):
    """The responses to one prompt, and what is kept of the conversation that it continues."""

    members: list[GeneratedSequence]
    prefix: Prefix | None


class _Batch(NamedTuple):
    """Responses in progress, and the position of each in a cache.

    Attributes:
        sequences: the responses.
        cache: the cache of the model's layers.
        rows: int64, the row of each response.
        ends: int64, the column after its last.
    """

    sequences: list[GeneratedSequence]
    cache: Cache
    rows: np.ndarray
    ends: np.ndarray

    @property
    def active(self) -> np.ndarray:
        """int64: the indices of responses that have not ended."""
        return np.flatnonzero([not sequence.done for sequence in self.sequences])


class SequenceGenerator:
    """Generates with a causal language model, all of whose layers are attention layers.

    Args:
        model: any such model of transformers, on its device.
        max_batch_tokens: padded tokens of prompts in one forward pass.
        max_cache_tokens: padded tokens in the cache, of prompts and the longest responses.
        prefix_cache_tokens: tokens of conversations whose keys and values are kept for their next prompts.
    """

    def __init__(
        self, model: "PreTrainedModel", *, max_batch_tokens: int, max_cache_tokens: int, prefix_cache_tokens: int = 0
    ):
        self.model, self.prefixes = model, PrefixCache(prefix_cache_tokens)
        self.max_batch_tokens, self.max_cache_tokens = max_batch_tokens, max_cache_tokens

    def generate(self, sequences: Iterable[GeneratedSequence], sampling: Sampling) -> None:
        """Complete every response.

        Raises:
            ValueError: the model has layers of another kind.
        """
        _check_layers(self.model)
        self._device = self.model.device  # looked up once: the property walks through all parameters
        waiting = deque(self._to_read(sequences))
        batch: _Batch | None = None
        while waiting or batch:
            parts = [batch] if batch else []
            while waiting and self._fits(parts, waiting[0], sampling.max_new_tokens):
                parts.append(self._read(waiting.popleft(), sampling))
                self._keep(parts[-1])
            # Joining copies the cache: only for new prompts, or when enough responses have ended.
            if batch is None or len(parts) > 1 or len(batch.active) < (1 - MOST_ENDED) * len(batch.sequences):
                batch = self._join(parts)
            if batch:
                batch = self._step(batch, sampling)
                self._keep(batch)

    def _to_read(self, sequences: Iterable[GeneratedSequence]) -> Iterator[list[_Prompt]]:
        """Yield the prompts of each forward pass: first those with a kept prefix, then whole ones."""
        # Group members share the first prompt, which is then read once for all of them.
        by_prompt: dict[bytes, list[GeneratedSequence]] = defaultdict(list)
        for sequence in sequences:
            by_prompt[sequence.prompt_ids.tobytes()].append(sequence)
        kept: list[_Prompt] = []
        whole: list[_Prompt] = []
        for members in by_prompt.values():
            first = members[0]
            prefix = self.prefixes.take(first.prompt_ids, first.adapter, first.begins_with)
            for member in members:
                member.prompt_cached = prefix.length if prefix else 0
            (kept if prefix else whole).append(_Prompt(members, prefix))
        # A pass over prefixes reads few tokens, and its cache is what takes memory.
        for prompts, limit in ((kept, self.max_cache_tokens), (whole, self.max_batch_tokens)):
            lengths = [len(prompt.members[0].prompt_ids) for prompt in prompts]
            for batch in length_sorted_batches(lengths, limit):
                yield [prompts[index] for index in batch]

    def _keep(self, batch: _Batch) -> None:
        """Keep the keys and values of conversations whose present response has ended."""
        if not self.prefixes.max_tokens:
            return
        for sequence, row, end in zip(batch.sequences, batch.rows.tolist(), batch.ends.tolist(), strict=True):
            if sequence.done and sequence.goes_on:
                sequence.goes_on = False  # once
                conversation = np.concatenate((sequence.prompt_ids, sequence.token_ids))
                self.prefixes.keep(conversation, sequence.adapter, batch.cache, row, end, sequence.num_computed_tokens)

    def _fits(self, parts: Sequence[_Batch], prompts: list[_Prompt], max_new_tokens: int) -> bool:
        """Return True if these prompts can be read now: they fit beside those in progress, or there are none."""
        active = [part.sequences[index] for part in parts for index in part.active]
        new = [sequence for prompt in prompts for sequence in prompt.members]
        # All rows of the joined cache are as wide as the longest prompt.
        longest = max(len(sequence.prompt_ids) for sequence in (*active, *new))
        return not active or (len(active) + len(new)) * (longest + max_new_tokens) <= self.max_cache_tokens

    def _read(self, prompts: list[_Prompt], sampling: Sampling) -> _Batch:
        """Read each prompt once, from the end of its prefix, and draw the first token of each of its responses."""
        starts = np.array([prompt.prefix.length if prompt.prefix else 0 for prompt in prompts])
        texts = [prompt.members[0].prompt_ids[start:] for prompt, start in zip(prompts, starts, strict=True)]
        lengths = np.array([len(text) for text in texts])
        # The padding is on the right, where causal attention never looks.
        ids = np.zeros((len(prompts), lengths.max()), dtype=np.int64)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = text
        cache, options, columns = self._prefixes(prompts, starts, ids.shape[1])
        hidden = self.model.get_decoder()(
            input_ids=self._tensor(ids), past_key_values=cache, use_cache=True, **options
        )[0]
        logits = head_logits(self.model, hidden[self._tensor(np.arange(len(prompts))), self._tensor(lengths - 1)])
        sequences = [sequence for prompt in prompts for sequence in prompt.members]
        for sequence in sequences:
            sequence.num_computed_tokens = len(sequence.prompt_ids)
        rows = np.repeat(np.arange(len(prompts)), [len(prompt.members) for prompt in prompts])
        _draw(sequences, logits[self._tensor(rows)], sampling)
        return _Batch(sequences, cache, rows, columns + lengths[rows])

    def _prefixes(
        self, prompts: list[_Prompt], starts: np.ndarray, width: int
    ) -> tuple[Cache, dict[str, torch.Tensor], int]:
        """Return a cache with the prefixes of prompts, what the model needs to know of it to read `width` more tokens,
        and its number of columns. Without prefixes, the cache is empty."""
        prefixes = [prompt.prefix for prompt in prompts if prompt.prefix]
        if not prefixes:
            # ReadLayer keeps whole prompts: the model masks the part outside a sliding window.
            return Cache(layer_class_to_replicate=ReadLayer), {}, 0
        columns = int(starts.max())
        rows = [Rows(prefix.cache, self._tensor([0]), self._tensor([prefix.length])) for prefix in prefixes]
        read, places = self._tensor(starts)[:, None], self._tensor(np.arange(columns + width))
        options = {
            # A prefix is in the last columns before the new tokens.
            "attention_mask": (places >= columns - read).long(),
            "position_ids": read + places[:width],
        }
        return join(rows, columns), options, columns

    def _join(self, parts: Sequence[_Batch]) -> _Batch | None:
        """Return one batch of all responses in progress; None if all have ended."""
        active = [(part, part.active) for part in parts]
        sequences = [part.sequences[index] for part, indices in active for index in indices]
        if not sequences:
            return None
        columns = max(sequence.cached for sequence in sequences)
        rows = [
            Rows(part.cache, self._tensor(part.rows[indices]), self._tensor(part.ends[indices]))
            for part, indices in active
        ]
        return _Batch(sequences, join(rows, columns), np.arange(len(sequences)), np.full(len(sequences), columns))

    def _step(self, batch: _Batch, sampling: Sampling) -> _Batch:
        """Draw the next token of every response. Ended ones stay in the forward pass, but nothing is drawn for them."""
        lengths, columns = [sequence.cached for sequence in batch.sequences], batch.cache.get_seq_length()
        cached = self._tensor(lengths)[:, None]
        # A row's tokens are in its last columns; the new one's column comes on top. Full rows need no mask.
        mask = None if min(lengths) == columns else (self._tensor(np.arange(columns + 1)) >= columns - cached).long()
        hidden = self.model.get_decoder()(
            input_ids=self._tensor([[sequence.token_ids[-1]] for sequence in batch.sequences]),
            attention_mask=mask,
            position_ids=cached,
            past_key_values=batch.cache,
            use_cache=True,
        )[0][:, -1]
        active = batch.active
        for index in active:
            batch.sequences[index].num_computed_tokens += 1
        if len(active) < len(lengths):
            hidden = hidden[self._tensor(active)]
        logits = head_logits(self.model, hidden)
        _draw([batch.sequences[index] for index in active], logits, sampling)
        return batch._replace(ends=batch.ends + 1)

    def _tensor(self, values: Sequence[Any] | np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values, device=self._device)


def _check_layers(model: "PreTrainedModel") -> None:
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    unsupported = [kind for kind in kinds if not kind.endswith("attention") or kind == "linear_attention"]
    if unsupported or getattr(model, "_is_stateful", False):
        layers = f"layers of type {unsupported[0]}" if unsupported else "recurrent layers"
        raise ValueError(
            f"{type(model).__name__} has {layers}, whose memory engine=transformers cannot join with that of other "
            "responses. Use engine=vllm, or a model with attention layers alone."
        )


def _draw(sequences: Sequence[GeneratedSequence], logits: torch.Tensor, sampling: Sampling) -> None:
    """Draw the next token of every response from its row of the logits."""
    logits, ids = restrict(logits, [sequence.allowed() for sequence in sequences])
    columns, logprobs = draw(logits, sampling, np.array([sequence.next_uniform() for sequence in sequences]))
    tokens = columns if ids is None else ids.gather(1, columns[:, None])[:, 0]
    for sequence, token, logprob in zip(sequences, tokens.tolist(), logprobs.tolist(), strict=True):
        sequence.append(token, logprob)
