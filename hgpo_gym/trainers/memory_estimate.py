"""Estimate the memory that a language model's run needs on each device, by the formula of docs/guides/gpu_memory.md.

A run prints the estimate before it begins, and `benchmarks.published_cost` tabulates it.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch

from hgpo_gym.policies.likelihood import LOGITS_AT_ONCE
from hgpo_gym.policies.lora import adapter_rank, has_adapter
from hgpo_gym.processes import Processes
from hgpo_gym.registry import Choice

if TYPE_CHECKING:
    from hgpo_gym.trainers.settings import RolloutSettings
    from hgpo_gym.trainers.update.settings import TrainerSettings

GIB = 1 << 30
LOGIT_BYTES = 21
"""Bytes per logit at the peak of the backward pass, measured: five copies in float32 and a mask."""
SCORED_LOGIT_BYTES = 14
"""Bytes per logit without gradients, measured."""
RECOMPUTED = 1.6
"""Memory of a recomputed layer, gradients included, as a multiple of its activations."""
GATHERED_LAYERS = 3
"""Layers that FSDP2 gathers during an update: the current one, the next one, and the gradients of the last one."""
ROOM = 0.95
"""The largest safe share of the memory: the formula leaves out the CUDA context and fragmentation."""


@dataclass(frozen=True)
class ModelSize:
    """Bytes and widths of a model. FSDP2 gathers decoder layers one at a time. It keeps the embeddings and all other
    weights outside of layers gathered throughout."""

    weights: float
    trained: float
    trained_numbers: int
    outside: float
    layer: float
    matrices: int
    head: int
    itemsize: int
    hidden: int
    intermediate: int
    layers: int
    keys: int
    vocabulary: int
    rank: int | None

    @classmethod
    def of(cls, model: Any) -> Self:
        """Count a model's weights. A model on the meta device is enough."""
        config = model.config.get_text_config()
        names = set(getattr(model, "_no_split_modules", None) or ())
        layers = [module for module in model.modules() if type(module).__name__ in names]
        total_bytes, layer_bytes = _nbytes(model), [_nbytes(layer) for layer in layers]
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        layer_weights = [weight for layer in layers for weight in layer.parameters()]
        head = model.get_output_embeddings().weight
        heads = config.num_attention_heads
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        feed_forward = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        return cls(
            weights=total_bytes,
            trained=sum(map(_bytes, trained)),
            trained_numbers=sum(weight.numel() for weight in trained),
            outside=total_bytes - sum(layer_bytes),
            layer=max(layer_bytes, default=0),
            matrices=sum(weight.numel() for weight in layer_weights if weight.requires_grad and weight.ndim > 1),
            head=head.numel() if head.requires_grad else 0,
            itemsize=head.element_size(),
            hidden=config.hidden_size,
            intermediate=feed_forward,
            layers=config.num_hidden_layers,
            keys=key_heads * (getattr(config, "head_dim", None) or config.hidden_size // heads),
            vocabulary=config.vocab_size,
            rank=adapter_rank(model) if has_adapter(model) else None,
        )

    def kept_per_token(self, precision: str) -> int:
        """Return the bytes that a layer keeps of a token for the backward pass. The numbers are what autograd
        reports for Qwen2."""
        key_bytes, feed_forward_bytes = (4, 8) if self._computes_16_bits(precision) else (8, 16)
        hidden_bytes, rank_bytes = (20, 0) if self.itemsize == 2 else (30, 0) if precision == "bfloat16" else (32, 0)
        if self.rank is not None:
            hidden_bytes, rank_bytes = 24, 14 if self._computes_16_bits(precision) else 28
        widths = hidden_bytes * self.hidden + key_bytes * self.keys + feed_forward_bytes * self.intermediate
        return widths + rank_bytes * (self.rank or 0)

    def cast(self, precision: str) -> float:
        """Return the bytes of autocast's copies of trained float32 matrices, which last as long as a pass."""
        return 2.0 * self.matrices if (self.itemsize, precision) == (4, "bfloat16") else 0.0

    def scoring(self, tokens: float, responses: float, precision: str) -> float:
        """Return the bytes of a forward pass without gradients: the larger of a layer's feed-forward part and the
        logits of response tokens."""
        width = 2 if self._computes_16_bits(precision) else 4
        layer = tokens * (3 * width * self.intermediate + (6 + 2 * width) * self.hidden)
        head = 2.0 * self.vocabulary * self.hidden if self.itemsize > width else 0.0
        return max(layer, head + SCORED_LOGIT_BYTES * self._logits(responses))

    def passes(self, tokens: float, responses: float, precision: str, *, checkpointing: bool) -> float:
        """Return the bytes of a forward and a backward pass over `tokens` tokens, of which `answers` belong to
        responses."""
        copies, activations = self.cast(precision), tokens * self.kept_per_token(precision)
        logits = LOGIT_BYTES * self._logits(responses)
        if not checkpointing:
            return copies + self.layers * activations + logits
        inputs = self.layers * tokens * self.hidden * self.itemsize
        return inputs + max(copies + logits, RECOMPUTED * activations)

    def cache(self, tokens: int, precision: str) -> float:
        """Return the bytes of the keys and values of `tokens` tokens."""
        return 2.0 * self.layers * self.keys * tokens * (2 if self._computes_16_bits(precision) else 4)

    def _logits(self, responses: float) -> float:
        return min(responses, LOGITS_AT_ONCE // self.vocabulary) * self.vocabulary

    def _computes_16_bits(self, precision: str) -> bool:
        return precision == "bfloat16" or self.itemsize == 2


@dataclass(frozen=True)
class Setup:
    """The settings that the memory depends on, apart from the model.

    Attributes:
        copies: number of processes that share weights, gradients and optimiser (FSDP2); 1 means no sharding.
        reference: True if the reference policy is a separate model.
        scores_old: True if log-probabilities are computed again before an update.
        past: number of earlier updates whose weights are kept.
        engine: bytes that vLLM takes beside the trainer while it generates; None if transformers generates.
        engine_weights: bytes of vLLM's weights alone, which wake first.
        sleeps: True if vLLM frees both during updates.
        overlaps: True if a second transformers model generates during updates.
    """

    precision: str
    checkpointing: bool
    optimizer: str
    max_batch_tokens: int
    copies: int = 1
    reference: bool = True
    scores_old: bool = False
    past: int = 0
    prompt_tokens: int = 0
    cache_tokens: int = 0
    engine: float | None = None
    engine_weights: float = 0.0
    sleeps: bool = False
    overlaps: bool = False


Phases = dict[str, dict[str, float]]
"""For each phase of a run, the bytes of each of its parts."""


def phases(size: ModelSize, setup: Setup) -> Phases:
    """Return the bytes that a process holds on its device in each phase of a run. Phases follow one another, so
    their bytes do not add up."""
    sharded, tokens = setup.copies > 1, setup.max_batch_tokens
    eight_bits = setup.optimizer == "adamw_8bit"  # muon's state is smaller than adamw's, by up to a half
    resident = {
        "weights": size.weights / setup.copies,
        "optimiser": 2.0 * (size.trained_numbers if eight_bits else size.trained) / setup.copies,
        "reference": size.weights * setup.reference / setup.copies,
        "earlier weights": setup.past * size.trained,
    }
    unsharded = {"gathered weights": size.weights if sharded else 0.0}
    # Logits are computed in chunks, so their memory has an upper bound.
    responses = min(tokens, LOGITS_AT_ONCE // size.vocabulary)
    scoring = {"a pass": size.scoring(tokens, responses, setup.precision)}
    if setup.engine is None:
        decoding = {
            # Autocast also copies the output matrix, which `cast` leaves out.
            "bfloat16 copies": size.cast(setup.precision) and size.cast(setup.precision) + 2.0 * size.head,
            "keys and values": size.cache(setup.cache_tokens, setup.precision),
        }
        generation: Phases = {
            "generation": {
                **resident, **unsharded, **decoding, "a pass": size.scoring(setup.prompt_tokens, 0, setup.precision)
            }
        }  # fmt: skip
        concurrent = {"the second model": size.weights + sum(decoding.values())} if setup.overlaps else {}
    else:
        awake, waking = {"vLLM": setup.engine}, {"vLLM": setup.engine_weights if setup.sleeps else setup.engine}
        generation = {"generation": {**resident, **awake}, "copying to vLLM": {**resident, **unsharded, **waking}}
        # An engine that sleeps frees its memory before the update begins.
        concurrent = {} if setup.sleeps else awake
    gathered = 2 * size.outside + GATHERED_LAYERS * size.layer if sharded else 0.0
    update = {
        **resident,
        "gradients": size.trained / setup.copies,
        **concurrent,
        "gathered layers": gathered,
        "a pass": size.passes(tokens, responses, setup.precision, checkpointing=setup.checkpointing),
    }
    return {
        # Each process loads whole models before FSDP2 divides them.
        **({"loading": {"weights": (1 + setup.reference) * size.weights}} if sharded else {}),
        **generation,
        **({"old log-probabilities": {**resident, **concurrent, **unsharded, **scoring}} if setup.scores_old else {}),
        **({"scoring the reference": {**resident, **concurrent, **unsharded, **scoring}} if setup.reference else {}),
        "the update": update,
    }


def peak(size: ModelSize, setup: Setup) -> float:
    """Return the bytes of the phase that needs the most."""
    return max(sum(parts.values()) for parts in phases(size, setup).values())


def setup_of(
    trainer: "TrainerSettings",
    rollout: "RolloutSettings",
    engine_choice: Choice,
    *,
    scores_old: bool,
    conversations: bool = False,
    size: ModelSize,
    processes: Processes,
    device: torch.device,
) -> Setup:
    """Return the setup that a run's settings give on this device.

    Args:
        scores_old: the loss needs log-probabilities by the trainer before the update.
        conversations: prompts continue one another, so that the engine keeps their prefixes.
    """
    engine = engine_choice.options
    prefix_tokens = engine.get("prefix_cache_tokens", 0) if conversations else 0
    setup = Setup(
        precision=trainer.precision,
        checkpointing=trainer.gradient_checkpointing,
        optimizer=trainer.optimizer,
        max_batch_tokens=trainer.max_batch_tokens,
        copies=processes.count if processes.strategy == "fsdp2" else 1,
        reference=trainer.kl_coef > 0 and size.trained == size.weights,
        scores_old=scores_old,
        past=rollout.staleness,
        prompt_tokens=engine.get("max_batch_tokens", 0),
        cache_tokens=engine.get("max_cache_tokens", 0) + prefix_tokens,
        overlaps=rollout.overlap,
    )
    if engine_choice.name != "vllm":
        return setup
    if engine.get("server"):
        return replace(setup, engine=0.0)
    from hgpo_gym.policies.vllm_engine import CPU_KV_CACHE_GIB

    on_cpu, cache = device.type == "cpu", engine.get("kv_cache_gib")
    dtype = engine.get("dtype", "auto")
    bytes_each = 4 if dtype == "float32" or (dtype == "auto" and on_cpu) else 2
    weights = bytes_each * size.weights / size.itemsize / engine.get("tensor_parallel_size", 1)
    # On a CPU, or with kv_cache_gib, vLLM takes a fixed cache instead of a share of the memory.
    if on_cpu or cache:
        engine_bytes = weights + (cache or CPU_KV_CACHE_GIB) * GIB
    else:
        engine_bytes = engine.get("gpu_memory_utilization", 0.3) * memory_of(device)
    return replace(setup, engine=engine_bytes, engine_weights=weights, sleeps=bool(engine.get("sleep_level", 0)))


def memory_of(device: torch.device) -> int:
    """Return the bytes of a GPU's memory, or of this machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_lines(
    trainer: "TrainerSettings",
    rollout: "RolloutSettings",
    engine: Choice,
    *,
    scores_old: bool,
    conversations: bool,
    model: Any,
    processes: Processes,
) -> Iterator[str]:
    """Yield lines about the memory that the run needs and that the device has. If it is too little, also yield the
    settings that lower the need."""
    size, device = ModelSize.of(model), model.device
    needs = {"scores_old": scores_old, "conversations": conversations}
    setup = setup_of(trainer, rollout, engine, **needs, size=size, processes=processes, device=device)
    sharing = processes.count if device.type == "cpu" else 1  # which share the memory of the machine
    yield from lines(size, setup, memory_of(device) / sharing, device, processes.count)


def lines(size: ModelSize, setup: Setup, available: float, device: torch.device, processes: int = 1) -> Iterator[str]:
    """Yield the lines of `memory_lines`, for `available` bytes a process."""
    by_phase = {phase: sum(parts.values()) for phase, parts in phases(size, setup).items()}
    phase = max(by_phase, key=by_phase.__getitem__)
    parts = ", ".join(
        f"{name} {_gib(value)}" for name, value in phases(size, setup)[phase].items() if value > 0.005 * by_phase[phase]
    )
    each = f" for each of {processes} processes" if processes > 1 else ""
    where, part = ("this machine", each) if device.type == "cpu" else (str(device), "")
    needed = by_phase[phase]
    yield (
        f"Memory: about {_gib(needed)} GiB{each}, the most in {phase} ({parts}); "
        f"{where} has {_gib(available)} GiB{part}."
    )
    if needed <= ROOM * available:
        return
    remedies = [
        (setting, peak(size, changed_setup))
        for setting, changed_setup in _remedies(size, setup, several=processes > 1)
        if peak(size, changed_setup) < 0.99 * needed
    ]
    suggestions = ", ".join(f"{setting} ({_gib(value)})" for setting, value in remedies)
    yield (
        f"Warning: that is more than {ROOM:.0%} of what there is, and the run may end for lack of memory. "
        f"What lowers it, each on top of those "
        f"before, to so many GiB: {suggestions or 'nothing of these settings'}; or an adapter (model.lora.rank=32)."
    )


def _remedies(size: ModelSize, setup: Setup, *, several: bool) -> Iterator[tuple[str, Setup]]:
    """Yield settings that may need less memory, each on top of those before it."""
    if setup.engine and not setup.sleeps:
        setup = replace(setup, sleeps=True)
        yield "engine.sleep_level=2", setup
    if not setup.checkpointing:
        setup = replace(setup, checkpointing=True)
        yield "trainer.gradient_checkpointing=true", setup
    half = setup.max_batch_tokens // 2
    setup = replace(setup, max_batch_tokens=half)
    yield f"trainer.max_batch_tokens={half}", setup
    if setup.engine is None:
        half = setup.prompt_tokens // 2
        setup = replace(setup, prompt_tokens=half)
        yield f"engine.max_batch_tokens={half}", setup
    if several:
        setup = replace(setup, copies=2 * max(setup.copies, 2))
        yield f"distributed=fsdp2 on {setup.copies} devices", setup
    elif size.trained == size.weights:
        yield "distributed=fsdp2 on 4 devices", replace(setup, copies=4)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f}"


def _nbytes(module: torch.nn.Module) -> int:
    return sum(map(_bytes, module.parameters()))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
