"""The server of `actor_rollout_ref.rollout.name=tiny`. It imports no verl, which takes a process seven seconds."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM


class TinyServer:
    """Draws each token from the model's distribution, and records its log-probability.

    Args:
        path: a folder with the model's configuration; the weights come from the trainer.
        limits: the most tokens of a prompt, and of a response.
        seed: of the draws.
        awake: it need not be woken up, because the trainer has no claim on its memory.
    """

    def __init__(self, path: str, limits: tuple[int, int], seed: int, *, awake: bool = False):
        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path)).eval()
        self._limits = limits
        self._generator = torch.Generator().manual_seed(seed)
        self._turn = asyncio.Lock()
        self._open = asyncio.Event()  # asynchronous trainers close it while weights change
        self._open.set()
        self._version: int | None = None
        self._awake = awake
        self.served = 0

    async def generate(
        self, prompt_ids: Sequence[int], sampling_params: dict[str, Any], request_id: str, **media: Any
    ) -> SimpleNamespace:
        """Return the fields of verl's TokenOutput, with at most `max_tokens` tokens, or as many as the configured
        lengths leave, as verl's servers do."""
        if any(value is not None for value in media.values()):
            raise NotImplementedError(f"rollout.name=tiny reads text only, not {sorted(media)}.")
        longest = min(self._limits[1], sum(self._limits) - len(prompt_ids))
        while True:
            await self._open.wait()
            async with self._turn:
                if not self._open.is_set():
                    continue  # it was closed while this request waited
                if not self._awake:
                    raise RuntimeError("generate() while asleep: the trainer holds the memory.")
                tokens, log_probs, complete = await asyncio.to_thread(
                    self._draw, list(prompt_ids), max(1, sampling_params.get("max_tokens", longest)), sampling_params
                )
                self.served += 1
                return SimpleNamespace(
                    token_ids=tokens,
                    log_probs=log_probs if sampling_params.get("logprobs") else None,
                    routed_experts=None,
                    num_preempted=None,
                    stop_reason="completed" if complete else "aborted",  # the client asks for the rest later
                    extra_fields={"global_steps": self._version},
                )

    @torch.inference_mode()
    def _draw(self, prompt: list[int], count: int, sampling: dict[str, Any]) -> tuple[list[int], list[float], bool]:
        """Return tokens, their log-probabilities, and whether the response is complete."""
        if sampling.get("top_k", -1) > 0 or sampling.get("top_p", 1.0) < 1.0:
            raise NotImplementedError("rollout.name=tiny draws from the whole distribution: top_k=-1 top_p=1.0.")
        temperature = sampling.get("temperature", 1.0)
        tokens: list[int] = []
        log_probs: list[float] = []
        cache = None
        inputs = torch.tensor([prompt])
        while len(tokens) < count:
            if not self._open.is_set():
                return tokens, log_probs, False
            output = self._model(input_ids=inputs, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            logits = output.logits[0, -1].float()
            distribution = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
            token = (
                int(torch.multinomial(distribution.exp(), 1, generator=self._generator))
                if temperature
                else int(logits.argmax())
            )
            tokens.append(token)
            log_probs.append(float(distribution[token]))
            if token in (sampling.get("stop_token_ids") or [self._model.config.eos_token_id]):
                break
            inputs = torch.tensor([[token]])
        return tokens, log_probs, True

    async def load(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        async with self._turn:
            missing, unexpected = self._model.load_state_dict(weights, strict=False)
            tied = {"lm_head.weight"} if self._model.config.tie_word_embeddings else set()
            if set(missing) - tied or unexpected:
                raise ValueError(f"Weights do not fit: missing {missing}, unexpected {unexpected}.")
            self._version = self._version if version is None else version

    async def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights that it serves."""
        return {name: value.clone() for name, value in self._model.state_dict().items()}

    async def wake_up(self, tags: Sequence[str] = ()) -> None:
        self._awake = True

    async def sleep(self) -> None:
        async with self._turn:  # after the request in progress
            self._awake = False

    async def clear_kv_cache(self) -> None:
        pass

    release_kv_cache = resume_kv_cache = stop_profile = clear_kv_cache

    async def start_profile(self, **_: Any) -> None:
        pass

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        self._open.clear()
        async with self._turn:  # until the request in progress has stopped
            pass

    async def resume_generation(self) -> None:
        self._open.set()
