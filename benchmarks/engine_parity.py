"""The distance of each engine's log-probabilities from the trainer's, for a small model of each architecture.

    python -m benchmarks.engine_parity [--engine vllm] [--architectures Mixtral "Gemma 2"]

Prints the largest difference before and after an update. With vLLM the last lines are planted faults in the experts of
Qwen3-MoE, which must be refused.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from hgpo_gym.policies import vllm_policy, vllm_worker
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.vllm_policy import VllmPolicy
from tests.checks.architectures import ARCHITECTURES, OPTIONS, gap, make_model, make_tokenizer, update

ENGINES = ("transformers", "vllm")
WITH_EXPERTS = "Qwen3-MoE"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default="transformers")
    parser.add_argument("--architectures", nargs="+", choices=list(ARCHITECTURES), default=list(ARCHITECTURES))
    options = parser.parse_args()
    print(f"| architecture | {options.engine}: before an update | after |\n| --- | ---: | ---: |", flush=True)
    for name in options.architectures:
        print(f"| {name} | {measured(name, options.engine)} |", flush=True)
    if options.engine == "vllm" and WITH_EXPERTS in options.architectures:
        for fault, planted in FAULTS.items():
            print(f"| {WITH_EXPERTS}, {fault} | {planted()} |", flush=True)


def measured(name: str, engine: str) -> str:
    """Two columns: the differences, or why it is refused."""
    try:
        policy = make_policy(name, engine)
        before = gap(policy)
        update(policy)
        return f"{before:.1e} | {gap(policy):.1e}"
    except ValueError as error:
        return f"refused | {error}"


def make_policy(name: str, engine: str) -> Any:
    """A policy with a small model of the architecture."""
    model, tokenizer = make_model(name), make_tokenizer()
    if engine == "transformers":
        return LanguageModelPolicy(model, tokenizer, constrain="none", **OPTIONS)
    return VllmPolicy(model, tokenizer, constrain="none", **OPTIONS, enforce_eager=True, kv_cache_gib=0.05)


def random_experts() -> str:
    """The engine is given all weights but those of experts."""
    sent = vllm_policy.engine_weights

    def without_experts(model: Any, **options: Any) -> Iterator[tuple[str, Any]]:
        return ((name, weight) for name, weight in sent(model, **options) if ".experts." not in name)

    return _with(vllm_policy, "engine_weights", without_experts)


def unpacked_experts() -> str:
    """Experts are left as vLLM's own `reload_weights` leaves them."""
    return _with(vllm_worker, "packing_experts", lambda _model: nullcontext())


def _with(module: Any, name: str, replacement: Callable[..., Any]) -> str:
    original = getattr(module, name)
    setattr(module, name, replacement)
    try:
        return measured(WITH_EXPERTS, "vllm")
    finally:
        setattr(module, name, original)


FAULTS = {"random experts": random_experts, "experts not packed": unpacked_experts}

if __name__ == "__main__":
    main()
