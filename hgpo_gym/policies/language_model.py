"""A Hugging Face causal language model as a policy.

Methods import transformers at their first use: this module checks every run's settings, also those of a table policy.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hgpo_gym.policies.base import (
    CannotRespondError,
    Distributions,
    Likelihood,
    Request,
    Response,
    Sampling,
    TokenRecord,
)
from hgpo_gym.policies.batching import by_adapter
from hgpo_gym.policies.engines import TransformersSettings
from hgpo_gym.policies.likelihood import computing_in, likelihood, read_distributions
from hgpo_gym.policies.lora import named_adapters, use_adapter
from hgpo_gym.policies.positions import check_length
from hgpo_gym.policies.sampling import uniform_numbers
from hgpo_gym.policies.states import hidden_states, state_size
from hgpo_gym.policies.text_tokens import TextTokens
from hgpo_gym.policies.trie import TokenTrie
from hgpo_gym.section import parse_section

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hgpo_gym.policies.generation import GeneratedSequence
    from hgpo_gym.policies.vllm_requests import Stopped


class LanguageModelPolicy(TextTokens):
    """Generates with a causal language model, see `generation`.

    Args:
        model: any causal language model of transformers, on its device.
        tokenizer: its tokenizer; with a chat template, the prompt becomes the user's turn.
        options: see `TransformersSettings`.

    Attributes:
        end_token_ids, end_of_text, opened: see `TextTokens`.

    Raises:
        ValueError: an unknown option or a wrong value, or as `TextTokens` does.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        **options: Any,
    ):
        from hgpo_gym.policies.generation import SequenceGenerator

        settings = parse_section(TransformersSettings, options, "engine.")
        super().__init__(
            tokenizer,
            max_prompt_tokens=settings.max_prompt_tokens,
            chat_template_kwargs=settings.chat_template_kwargs,
            template_date=settings.template_date,
            stop=settings.stop,
            stop_token_ids=settings.stop_token_ids,
            generation_ends=_generation_ends(model),
        )
        self.model, self.constrain, self.precision = model, settings.constrain, settings.precision
        self._generator = SequenceGenerator(
            model,
            max_batch_tokens=settings.max_batch_tokens,
            max_cache_tokens=settings.max_cache_tokens,
            prefix_cache_tokens=settings.prefix_cache_tokens,
        )
        self._trie = lru_cache(maxsize=10_000)(self._build_trie)

    def records(self, requests: Sequence[Request], responses: Sequence[str]) -> list[TokenRecord]:
        """Return the records of given responses, under this policy's constraint; log-probabilities are 0.

        Raises:
            KeyError: a response that the constraint does not allow.
        """
        records = []
        for (prompt, cut), request, response in zip(self.read_prompts(requests), requests, responses, strict=True):
            ids, trie = self.encode_response(response, request.literal_text), self._trie_of(request)
            allowed = None if trie is None else trie.along(ids.tolist())
            records.append(TokenRecord(prompt, ids, np.zeros(len(ids), dtype=np.float32), allowed, prompt_cut=cut))
        return records

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response for each request, in order. Each depends on its own seed, not on the batch."""
        sequences = self.begin(requests, sampling)
        if not any(request.earlier for request in requests):
            self._generator.prefixes.forget()  # new episodes: what is computed does not depend on those before
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
            CannotRespondError: a constrained request without responses to choose among.
        """
        from hgpo_gym.policies.generation import GeneratedSequence

        check_length(self.model, self.max_prompt_tokens, sampling.max_new_tokens)
        tries = [self._trie_of(request) for request in requests]
        return [
            GeneratedSequence(
                prompt,
                trie,
                uniform_numbers([request.seed], max(sampling.max_new_tokens, trie.depth if trie else 0))[0],
                self.response_ends,
                self._adapter_of(request),
                prompt_cut=cut,
                begins_with=[len(turn.tokens) for turn in reversed(request.earlier) if turn.tokens],
                goes_on=bool(request.opening),
            )
            for request, trie, (prompt, cut) in zip(requests, tries, self.read_prompts(requests), strict=True)
        ]

    def responses(self, sequences: "Sequence[GeneratedSequence]") -> list[Response]:
        """Return the responses. One that was chosen from a trie is the request's text, verbatim."""
        return [
            Response(
                self.response_ends.text(sequence.token_ids) if sequence.chosen is None else sequence.chosen,
                sequence.record(),
                sequence.truncated,
                self.opened,
            )
            for sequence in sequences
        ]

    @property
    def stopped(self) -> "Stopped | None":
        """The check whether a free response's tokens have reached a text that ends it; None if only tokens can end one,
        which the engine stops at by itself."""
        return self.response_ends.reached if self.response_ends.strings else None

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        """Return the likelihood under the constraint of the records, see `TrainablePolicy`.

        Raises:
            ValueError: records of several adapters.
        """
        self._generator.prefixes.forget()  # an update begins, which needs the memory
        self._activate_adapter(records)
        return likelihood(self.model, records, temperature=temperature)

    def read_distributions(
        self,
        records: Sequence[TokenRecord],
        reader: Callable[[Distributions], tuple[torch.Tensor, ...]],
        *,
        temperature: float,
    ) -> list[torch.Tensor]:
        """See `DistributionReader`. Raises ValueError as `likelihood` does."""
        self._activate_adapter(records)
        return read_distributions(self.model, records, reader, temperature=temperature)

    def _activate_adapter(self, records: Sequence[TokenRecord]) -> None:
        """Activate the adapter of the records. Raises ValueError if they have several."""
        adapter, *more_adapters = {record.adapter for record in records}
        if more_adapters:
            raise ValueError("likelihood: records of several adapters; ask for those of one at a time, see by_adapter.")
        if adapter is not None:
            use_adapter(self.model, adapter)

    @property
    def state_size(self) -> int:
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
        """Forget what was computed with earlier weights. The policy generates with the model itself."""
        self._generator.prefixes.forget()

    def save(self, folder: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
        """Write a plain Hugging Face folder, which `load_model` reads."""
        from hgpo_gym.policies.huggingface import save_model

        save_model(self.model, self.tokenizer, folder, weights)

    def _adapter_of(self, request: Request) -> str | None:
        adapters = named_adapters(self.model)
        if adapters and request.role not in adapters:
            raise CannotRespondError(
                f"The role {request.role!r} has no adapter: this model has those of {', '.join(adapters)}. Choose the "
                "team that it was trained as."
            )
        return request.role if adapters else None

    def _trie_of(self, request: Request) -> TokenTrie | None:
        if self.constrain == "none":
            return None
        if not request.allowed_responses:
            raise CannotRespondError(
                "engine.constrain=admissible needs responses to choose among, and "
                f"{f'the role {request.role!r}' if request.role else 'this environment'} lists none: set "
                "engine.constrain=none."
            )
        return self._trie(request.allowed_responses, request.literal_text)

    def _build_trie(self, responses: tuple[str, ...], literal_text: str) -> TokenTrie:
        sequences = [self._response_ids(response, literal_text) for response in responses]
        return TokenTrie(sequences, self.end_of_text, [response.removeprefix(self.opened) for response in responses])


def _generation_ends(model: Any) -> list[int]:
    """Return the end tokens of the model's `generation_config`; some models end a chat turn by another token than the
    tokenizer's."""
    eos_token_id = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return [] if eos_token_id is None else [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)
