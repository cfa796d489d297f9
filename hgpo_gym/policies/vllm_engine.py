"""vLLM's engine in this process: token ids in, token ids and their log-probabilities out."""

import atexit
import copy
import gc
import logging
import os
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from hgpo_gym.policies.engines import VllmSettings
from hgpo_gym.policies.language_part import text_model, towers
from hgpo_gym.policies.lora import DEFAULT, adapter_rank, base_model
from hgpo_gym.policies.vllm_requests import CONSTRAINT, SCORING, WORKER, Completion, Stopped, check_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM makes room for."""
CPU_KV_CACHE_GIB = 1.0
SHARED_MEMORY = Path("/dev/shm")  # a folder in memory
PARTS = ("weights", "kv_cache")
"""What vLLM frees when it sleeps, by vLLM's names."""


class VllmEngine:
    """vLLM in the trainer's process, on the same device. Its weights are random until `load`.

    Args:
        model: the trainer's model, which gives the architecture.
        options: of the engine.
        constrained: True if requests may restrict responses to a trie.

    Raises:
        ValueError: vLLM does not support the architecture, the device, the division into `tensor_parallel_size` parts,
            the adapter's format, or `sleep_level` on a CPU.
    """

    def __init__(self, model: "PreTrainedModel", options: VllmSettings, *, constrained: bool):
        if not _one_of_several():
            check_device(str(model.device))
        self._divided = options.tensor_parallel_size > 1
        # In this process, so that weights and callables get there as they are. The other model runner, which vLLM takes
        # where there is Triton, has another interface for logits processors.
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0"}
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        config = _engine_config(model)
        _check_architecture(config.architectures[0])
        on_cpu = current_platform.is_cpu()
        if on_cpu:
            _check_head_size(model)
            if options.sleep_level:
                raise ValueError(f"engine.sleep_level={options.sleep_level}: vLLM sleeps on GPUs alone. Set it to 0.")
        _check_division(model, options, on_cpu)
        platform = _platform_arguments(model, options, on_cpu)
        rank = _adapter_rank(model, options, platform["dtype"], on_cpu)
        self.takes_adapter = rank is not None
        # Every update would log a warning about position tables, which are computed and not loaded.
        logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
        with tempfile.TemporaryDirectory() as folder:
            config.save_pretrained(folder)
            arguments = EngineArgs(
                model=folder,
                skip_tokenizer_init=True,
                load_format="dummy",
                worker_extension_cls=WORKER,
                generation_config="vllm",
                seed=0,
                logprobs_mode="processed_logprobs",
                enable_prefix_caching=True,
                disable_log_stats=True,
                max_num_seqs=options.max_num_seqs,
                gpu_memory_utilization=options.gpu_memory_utilization,
                enforce_eager=options.enforce_eager,
                enable_sleep_mode=options.sleep_level > 0,
                logits_processors=[CONSTRAINT] if constrained else None,
                tensor_parallel_size=options.tensor_parallel_size,
                **platform,
                **({} if rank is None else {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}),
            )
            self._engine = LLMEngine.from_engine_args(arguments)
        _end_with_the_process(self._engine)
        self.max_model_len: int = self._engine.model_config.max_model_len
        self.dtype: str = str(platform["dtype"])
        self._open: dict[str, Stopped | None] = {}
        self._sleep_level = options.sleep_level
        self._asleep: set[str] = set()
        self._adapter: Any = None

    def submit(
        self, name: str, prompt_ids: list[int], parameters: Mapping[str, Any], stopped: Stopped | None = None
    ) -> None:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        self._open[name] = stopped
        kind = RequestOutputKind.CUMULATIVE if stopped else RequestOutputKind.FINAL_ONLY
        options = SamplingParams(**parameters, output_kind=kind)
        self._engine.add_request(name, tokens_input(prompt_ids), options, lora_request=self._adapter)

    def step(self) -> list[Completion]:
        """See `InferenceEngine`: one forward pass, a token for every response."""
        outputs: list[Any] = self._engine.step()
        stopped = {output.request_id for output in outputs if not output.finished and self._has_stopped(output)}
        if stopped:
            self._engine.abort_request(list(stopped))
        return [self._completion(output) for output in outputs if output.finished or output.request_id in stopped]

    @torch.no_grad()
    def load(self, weights: Iterable[tuple[str, torch.Tensor]], tied_head: str | None) -> list[str]:
        """Copy weights in place, in the engine's format; see `InferenceEngine`. With tensor parallelism the workers are
        other processes, which read a file."""
        if not self._divided:
            return self._load({"weights": weights, "tied_head": tied_head})
        with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as folder:
            path = Path(folder) / "model.safetensors"
            save_weights(weights, path)
            return self._load({"path": str(path), "tied_head": tied_head})

    def _load(self, arguments: dict[str, Any]) -> list[str]:
        missing: list[list[str]] = self._engine.collective_rpc("load_trainer_weights", kwargs=arguments)
        return sorted(set().union(*missing))

    def logprobs(self, token_ids: list[int]) -> list[float]:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input

        self._engine.add_request(
            "logprobs", tokens_input(token_ids), SamplingParams(**SCORING), lora_request=self._adapter
        )
        outputs: list[Any] = []
        while self._engine.has_unfinished_requests():
            outputs += self._engine.step()
        by_position = outputs[-1].prompt_logprobs[1:]
        return [by_token[token].logprob for by_token, token in zip(by_position, token_ids[1:], strict=True)]

    def load_adapter(self, folder: Path) -> None:
        from vllm.lora.request import LoRARequest

        self._engine.add_lora(LoRARequest(DEFAULT, 1, str(folder), load_inplace=True))
        self._adapter = LoRARequest(DEFAULT, 1, str(folder))

    def wake(self, part: str) -> None:
        if part in self._asleep:
            torch.cuda.empty_cache()  # vLLM needs the memory that torch caches
            self._engine.wake_up([part])
            self._asleep.remove(part)

    def sleep(self) -> bool:
        """Free the cache, and move weights to main memory (level 1) or free them (2); see `InferenceEngine`."""
        if self._sleep_level and not self._asleep:
            self.forget()
            self._engine.sleep(self._sleep_level)
            self._asleep = set(PARTS)
        return self._sleep_level > 1

    def forget(self) -> None:
        self._engine.abort_request(list(self._open))
        self._open.clear()
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM does not reset its prefix cache, which was computed with earlier weights.")

    def _has_stopped(self, output: Any) -> bool:
        stopped = self._open[output.request_id]
        return stopped is not None and stopped(list(output.outputs[0].token_ids))

    def _completion(self, output: Any) -> Completion:
        del self._open[output.request_id]
        (response,) = output.outputs
        logprobs = [
            by_token[token].logprob for by_token, token in zip(response.logprobs, response.token_ids, strict=True)
        ]
        return Completion(output.request_id, list(response.token_ids), logprobs, output.num_cached_tokens or 0)


def save_weights(weights: Iterable[tuple[str, torch.Tensor]], path: Path) -> None:
    """Write copies of weights for vLLM's workers: safetensors refuses a head that shares memory with an embedding."""
    save_file({name: weight.detach().cpu().clone() for name, weight in weights}, path)


def _end_with_the_process(engine: Any) -> None:
    """Shut the engine down at exit, and not when it is collected: it destroys the process group, which another engine
    may use. The group of a run of several processes stays."""
    engine.engine_core._finalizer.detach()
    if _one_of_several():
        atexit.register(gc.unfreeze)
    else:
        atexit.register(_shut_down, weakref.ref(engine.engine_core.engine_core))


def _shut_down(core: weakref.ref[Any]) -> None:
    if (alive := core()) is not None:
        alive.shutdown()


def _engine_config(model: Any) -> Any:
    """Return the language model's configuration, unquantized, with an untied output head: on a CPU, vLLM 0.32 keeps
    using the packed old head if it is tied to an embedding that was reloaded."""
    plain = text_model(base_model(model))
    config = copy.deepcopy(plain.config)
    config.architectures = [type(plain).__name__]  # a model made from scratch has none
    config.tie_word_embeddings = False
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def _platform_arguments(model: "PreTrainedModel", options: VllmSettings, on_cpu: bool) -> dict[str, Any]:
    max_model_len = options.max_model_len or model.config.get_text_config().max_position_embeddings
    kv_cache_gib = options.kv_cache_gib or (CPU_KV_CACHE_GIB if on_cpu else None)
    arguments: dict[str, Any] = {
        "max_model_len": max_model_len,
        "max_num_batched_tokens": options.max_batch_tokens,
        "dtype": options.dtype,
        "kv_cache_memory_bytes": None if kv_cache_gib is None else int(kv_cache_gib * 2**30),
    }
    if _one_of_several():
        arguments["distributed_executor_backend"] = "external_launcher"  # each process of the run has an engine
    if options.dtype == "auto":
        arguments["dtype"] = "float32" if on_cpu else "bfloat16"
    if on_cpu:
        # After a chunk of a prompt vLLM rewinds the request's generator by one token, which CPU generators cannot do.
        arguments |= {
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(options.max_batch_tokens, max_model_len),
        }
    return arguments


def _adapter_rank(model: "PreTrainedModel", options: VllmSettings, dtype: str, on_cpu: bool) -> int | None:
    """Return the LoRA rank to reserve if vLLM computes the adapter; None if it gets merged weights."""
    if options.adapter == "merged":
        return None
    if towers(base_model(model)):
        raise ValueError(
            f"engine.adapter=requests: vLLM runs the language model of {type(base_model(model)).__name__} alone, whose "
            "adapter has other names. Set engine.adapter=merged."
        )
    if (rank := adapter_rank(model)) is None:
        raise ValueError(
            "engine.adapter=requests needs one shared adapter: set model.lora.rank and team.weights=shared, or "
            "engine.adapter=merged."
        )
    if dtype == "float32" and not on_cpu:
        raise ValueError(
            "engine.adapter=requests, engine.dtype=float32: on a GPU vLLM computes adapters in 16 bits alone. Set "
            "engine.dtype=bfloat16 or engine.adapter=merged."
        )
    fitting = [larger for larger in LORA_RANKS if larger >= rank]
    if not fitting:
        raise ValueError(f"model.lora.rank={rank}: vLLM takes at most {LORA_RANKS[-1]}. Set engine.adapter=merged.")
    return fitting[0]


def _check_division(model: "PreTrainedModel", options: VllmSettings, on_cpu: bool) -> None:
    """Raise ValueError if the model cannot be divided over `tensor_parallel_size` devices."""
    size, heads = options.tensor_parallel_size, model.config.get_text_config().num_attention_heads
    if size == 1:
        return
    setting = f"engine.tensor_parallel_size={size}"
    if _one_of_several():
        raise ValueError(f"{setting}: each process of a run of several has an engine on its own GPU. Set it to 1.")
    if heads % size:
        raise ValueError(f"{setting}: it has to divide the model's {heads} attention heads.")
    if not on_cpu and size > torch.cuda.device_count():
        raise ValueError(f"{setting}: there are {torch.cuda.device_count()} GPUs.")


def _check_architecture(name: str) -> None:
    from vllm import ModelRegistry

    if name not in ModelRegistry.models:
        raise ValueError(
            f"engine=vllm: vLLM {_version()} does not have the architecture {name}. Set engine=transformers."
        )
    if getattr(ModelRegistry.models[name], "class_name", "").startswith("Transformers"):
        raise ValueError(
            f"engine=vllm: vLLM {_version()} computes {name} by the class of transformers, and changes that class so "
            "that a trainer in the same process cannot use it. Set engine=transformers, or engine.server for vLLM in a "
            "process of its own."
        )


def _version() -> str:
    import vllm

    return str(vllm.__version__)


def _one_of_several() -> bool:
    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


def _check_head_size(model: "PreTrainedModel") -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    config: Any = model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        raise ValueError(
            f"vLLM on a CPU computes attention heads of size {', '.join(map(str, sizes))}; this model's have {size} "
            f"({config.hidden_size} / {config.num_attention_heads}). For model=tiny set tiny.heads."
        )
