"""A language model that generates by vLLM. Likelihoods come from the trainer's model."""

import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo_gym.extras import install_command
from hgpo_gym.policies.base import Request, Response, Sampling
from hgpo_gym.policies.engine_check import CHECKED_LOADS, check_engine, text_to_score, trainers_logprobs
from hgpo_gym.policies.engine_weights import engine_weights, tied_head
from hgpo_gym.policies.engines import EngineSettings, VllmSettings
from hgpo_gym.policies.generation import GeneratedSequence
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.language_part import towers
from hgpo_gym.policies.lora import base_model, save_adapter
from hgpo_gym.policies.streams import respond
from hgpo_gym.policies.vllm_engine import VllmEngine
from hgpo_gym.policies.vllm_requests import InferenceEngine, sampling_parameters
from hgpo_gym.policies.vllm_server import VllmServer
from hgpo_gym.section import parse_section

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class VllmPolicy(LanguageModelPolicy):
    """Language model that generates by vLLM. The engine starts when needed.

    The engine has a copy of the weights, which is synchronised after `updated`. The first copies are checked: both
    models must give equal log-probabilities. Recorded log-probabilities are the engine's. With `top_p` below 1 they are
    renormalised over the nucleus, unlike those of `LanguageModelPolicy`.

    Args:
        model: a causal language model of transformers whose architecture vLLM supports.
        tokenizer: its tokenizer.
        options: see `VllmSettings`.

    Raises:
        ModuleNotFoundError: vLLM is not installed.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        **options: Any,
    ):
        self._settings = parse_section(VllmSettings, options, "engine.")
        if self._settings.server is None and importlib.util.find_spec("vllm") is None:
            raise ModuleNotFoundError(f"engine=vllm needs vLLM: {install_command('vllm')}")
        # The trainer's model reads prompts and scores responses by the same settings of texts.
        super().__init__(model, tokenizer, **self._settings.model_dump(include=set(EngineSettings.model_fields)))
        self._engine: InferenceEngine | None = None
        self._stale = self._base_stale = True
        self._missing: list[str] = []
        self._checks_left = CHECKED_LOADS
        self._acting = False

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response per request, in order. Each depends on its request's seed, not on its batch."""
        return respond(self.stream(sampling), requests)

    def stream(self, sampling: Sampling) -> "VllmStream":
        """Return a new stream of responses by the current weights.

        The prefix cache is emptied, so that results do not depend on earlier requests.

        Raises:
            ValueError: prompt and response may exceed the engine's limit.
        """
        self._engine = self._engine or self._start()
        longest = self.max_prompt_tokens + sampling.max_new_tokens
        if longest > self._engine.max_model_len:
            raise ValueError(
                f"engine.max_prompt_tokens={self.max_prompt_tokens} and max_new_tokens="
                f"{sampling.max_new_tokens} make {longest} tokens, vLLM's limit is {self._engine.max_model_len}: lower "
                "one of them, or raise engine.max_model_len as far as the model allows."
            )
        self._engine.forget()
        if not self._acting:
            self._wake(self._engine, nullcontext)
        return VllmStream(self._engine, self, sampling)

    def _start(self) -> InferenceEngine:
        constrained = self.constrain != "none"
        settings = self._settings
        if settings.server is None:
            return VllmEngine(self.model, settings, constrained=constrained)
        if towers(base_model(self.model)):
            raise ValueError(
                f"engine.server={settings.server}: {type(base_model(self.model)).__name__} reads images too, and its "
                "language model alone is played. Set engine.server=null, where vLLM runs that alone."
            )
        return VllmServer(
            settings.server,
            settings.server_weights,
            settings.max_num_seqs,
            timeout=settings.server_timeout,
            constrained=constrained,
        )

    @contextmanager
    def rollout_weights(self, gathered: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
        self._engine = self._engine or self._start()
        self._wake(self._engine, gathered)
        self._acting = True  # generates by these weights even while the model is trained
        try:
            yield
        finally:
            self._acting = False
            if self._engine.sleep():
                self._stale = self._base_stale = True

    def _wake(self, engine: InferenceEngine, gathered: Callable[[], AbstractContextManager[Any]]) -> None:
        """Wake the engine and synchronise its weights.

        Raises:
            ValueError: it computes by other weights, see `check_engine`.
        """
        engine.wake("weights")
        to_check = None
        if self._stale:
            with gathered():
                self._copy(engine)
                if self._checks_left:
                    text = text_to_score(self, engine.max_model_len - 1)
                    to_check = text, trainers_logprobs(self, text)
            self._stale = False
        engine.wake("kv_cache")
        if to_check is not None:
            self._checks_left -= 1
            self._check(engine, *to_check)

    def _check(self, engine: InferenceEngine, text: "np.ndarray", expected: "np.ndarray") -> None:
        engine.forget()
        found = engine.logprobs(text.tolist())
        engine.forget()  # leaves nothing in the prefix cache of later requests
        formats = {engine.dtype, str(self.model.dtype).removeprefix("torch.")}
        check_engine(
            found,
            expected,
            exact=formats == {"float32"},
            architecture=type(base_model(self.model)).__name__,
            missing=self._missing,
        )

    def _copy(self, engine: InferenceEngine) -> None:
        """Copy the model's weights into the engine. If it computes the adapter, the base weights are copied once."""
        if self._base_stale or not engine.takes_adapter:
            weights = engine_weights(self.model, with_adapter=not engine.takes_adapter)
            self._missing = engine.load(weights, tied_head(self.model))
            self._base_stale = False
        if not engine.takes_adapter:
            return
        with tempfile.TemporaryDirectory(prefix="hgpo_gym-adapter-") as folder:
            save_adapter(self.model, Path(folder))
            engine.load_adapter(Path(folder))

    def updated(self) -> None:
        """See `TrainablePolicy`. The next request copies the weights, but the engine starts now: the engines of several
        processes connect to each other, and a process may have no request."""
        self._stale = True
        if self._engine is None:
            self._engine = self._start()
            self._engine.sleep()


class VllmStream:
    """Stream of vLLM's responses, with continuous batching."""

    in_step = False

    def __init__(self, engine: InferenceEngine, policy: LanguageModelPolicy, sampling: Sampling):
        self._engine, self._policy, self._sampling = engine, policy, sampling
        self._names = count()
        self._sequences: dict[str, tuple[int, GeneratedSequence]] = {}
        self._forced: dict[int, Response] = {}

    @property
    def pending(self) -> int:
        return len(self._sequences) + len(self._forced)

    def ask(self, requests: Mapping[int, Request]) -> None:
        """See `Stream`. The only admissible response needs no request to the engine."""
        sequences = self._policy.begin(list(requests.values()), self._sampling)
        for (number, request), sequence in zip(requests.items(), sequences, strict=True):
            if sequence.done:
                (self._forced[number],) = self._policy.responses([sequence])
                continue
            name = str(next(self._names))
            self._sequences[name] = number, sequence
            parameters = sampling_parameters(request, sequence, self._sampling, self._policy.end_token_ids)
            stopped = None if sequence.trie else self._policy.stopped
            self._engine.submit(name, sequence.prompt_ids.tolist(), parameters, stopped)

    def work(self) -> dict[int, Response]:
        """See `Stream`: generate a token for every response, or return those that need no engine."""
        if self._forced:
            responses, self._forced = self._forced, {}
            return responses
        responses = {}
        for name, token_ids, logprobs, cached in self._engine.step():
            number, sequence = self._sequences.pop(name)
            sequence.prompt_cached = cached
            for token, logprob in zip(token_ids, logprobs, strict=True):
                if not sequence.done:
                    sequence.append(token, logprob)
            (responses[number],) = self._policy.responses([sequence])
        return responses
