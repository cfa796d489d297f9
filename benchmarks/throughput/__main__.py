"""Generated and trained tokens a second of one core, ours beside others', on the same model and ALFWorld prompts.

    python -m benchmarks.throughput generate --engines naive ours vllm [--model models/smollm2 --precision bfloat16]
    python -m benchmarks.throughput update

Only tokens of running environments count. Seconds are of the processor.
"""

import argparse
import os

os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = "1"  # before torch and tokenizers are imported

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.throughput.generation import Engine, LockStep, Ours, Spent, respond_all, spend
from benchmarks.throughput.update import OurUpdate, TrlUpdate, gradients_apart, update_settings
from benchmarks.throughput.workload import TASKS, Step, make_model, record_steps
from hgpo_gym.config.compose import load_config
from hgpo_gym.policies import Sampling, TokenRecord
from hgpo_gym.policies.huggingface import load_model
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.libraries import quiet_libraries

ENGINES = ("naive", "naive-running", "ours", "vllm")
MINI_BATCH = 128
CONSTRAINTS = ("none", "admissible")
"""Free text, and one of the admissible actions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("generate", "update"))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["naive", "naive-running", "ours"])
    parser.add_argument("--model", help="a folder or hub name (a tiny model, made from scratch)")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of generation and its cache"
    )
    parser.add_argument("--tasks", type=int, default=TASKS, help="of eight episodes each (default 8)")
    parser.add_argument("--steps", type=int, default=6, help="steps of the episodes, evenly spread (default 6)")
    parser.add_argument("--batch", type=int, help="only the first so many environments (all)")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--rows", type=int, default=256, help="answers to train on (default 256)")
    parser.add_argument("--trl-rows", type=int, nargs="+", default=[4, 8, 16, 32], help="answers in a pass of TRL's")
    parser.add_argument("--repeats", type=int, default=3, help="the best counts (default 3)")
    options = parser.parse_args()
    quiet_libraries(threads=1)
    steps = record_steps(options.tasks)
    model, tokenizer = make_model(steps) if options.model is None else load_model(options.model, device="cpu")
    print(f"{model.num_parameters():,} parameters, vocabulary {len(tokenizer)}, generation in {options.precision}")
    steps = [step.first(options.batch) for step in steps]
    steps = [step for step in steps if step.running.any()]
    steps = [steps[index] for index in np.linspace(0, len(steps) - 1, options.steps).astype(int)]
    for constrain in CONSTRAINTS:
        print(f"\nconstrain={constrain}")
        sampling = Sampling(max_new_tokens=options.max_new_tokens)
        settings = engine_settings("transformers", constrain, options.precision)
        policy = LanguageModelPolicy(model, tokenizer, **settings)
        records = describe(policy, steps, sampling)
        if options.what == "update":
            compare_updates(policy, records[: options.rows], options.trl_rows, options.repeats)
            continue
        compare_engines(
            {name: make_engine(name, policy, sampling, constrain) for name in options.engines}, steps, options.repeats
        )


def engine_settings(name: str, constrain: str, precision: str) -> dict[str, Any]:
    """Return the settings of an engine as a run has them, except the constraint, the precision and vLLM's size."""
    overrides = [f"engine={name}", f"engine.constrain={constrain}", f"trainer.precision={precision}"]
    settings = load_config("config", overrides)["engine"]
    del settings["kind"]
    return settings | ({"max_prompt_tokens": 1024, "dtype": precision} if name == "vllm" else {})


def make_engine(name: str, policy: LanguageModelPolicy, sampling: Sampling, constrain: str) -> Engine:
    if name.startswith("naive"):
        constrained, ended = constrain == "admissible", name == "naive"
        return LockStep(policy, sampling, constrained=constrained, ended=ended)
    if name == "vllm":
        from hgpo_gym.policies.vllm_policy import VllmPolicy

        return Ours(
            VllmPolicy(policy.model, policy.tokenizer, **engine_settings(name, constrain, policy.precision)), sampling
        )
    return Ours(policy, sampling)


def describe(policy: LanguageModelPolicy, steps: Sequence[Step], sampling: Sampling) -> list[TokenRecord]:
    """Print what is measured, and return our answers."""
    responses = [response for step in steps for response in policy.generate(step.asked, sampling)]
    records = [response.tokens for response in responses if response.tokens is not None]
    running = np.mean([step.running.mean() for step in steps])
    lengths = {
        "prompts": np.array([len(record.prompt_ids) for record in records]),
        "responses": np.array([len(record.token_ids) for record in records]),
    }
    print(f"{len(steps)} steps, {running:.0%} of the environments running; tokens: mean, median, longest")
    for name, counts in lengths.items():
        print(f"  {name} {counts.mean():.0f}, {np.median(counts):.0f}, {counts.max()}")
    return records


def best_of(work: dict[str, Callable[[], int]], repeats: int) -> dict[str, Spent]:
    """The cheapest run of each, taking turns."""
    runs: dict[str, list[Spent]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, task in work.items():
            runs[name].append(spend(task))
    return {name: max(spent, key=lambda run: run.rate) for name, spent in runs.items()}


def print_rates(best: dict[str, Spent], ours: str = "ours") -> None:
    print(f"{'':16}{'tokens':>9}{'processor s':>13}{'tokens/s':>10}{'clock s':>9}{'ours is':>9}")
    for name, run in best.items():
        ratio = f"{best[ours].rate / run.rate:8.2f}x" if ours in best else ""
        print(f"{name:16}{run.tokens:9}{run.processor:13.2f}{run.rate:10.0f}{run.clock:9.2f}{ratio}")


def compare_engines(engines: dict[str, Engine], steps: Sequence[Step], repeats: int) -> None:
    for engine in engines.values():
        respond_all(engine, steps[:1])  # vLLM compiles kernels
    print_rates(best_of({name: partial(respond_all, engine, steps) for name, engine in engines.items()}, repeats))


def compare_updates(
    policy: LanguageModelPolicy, records: Sequence[TokenRecord], trl_rows: Sequence[int], repeats: int
) -> None:
    settings = update_settings(MINI_BATCH)
    records = [record for record in records if len(record.choices)]
    records = records[: len(records) // MINI_BATCH * MINI_BATCH]
    advantages = np.random.default_rng(0).normal(size=len(records))
    print(f"  {len(records)} answers, {sum(map(len, records))} tokens, {MINI_BATCH} answers an optimiser step")
    updates: dict[str, OurUpdate | TrlUpdate] = {"ours": OurUpdate(policy.model, policy.tokenizer, settings)}
    for rows in trl_rows:
        updates[f"trl, {rows} a pass"] = TrlUpdate(policy.model, policy.tokenizer, settings, rows)
    for name, update in updates.items():
        train(update, records[:MINI_BATCH], advantages[:MINI_BATCH])
        apart = gradients_apart(updates["ours"].gradients, update.gradients)
        print(f"  gradient of the first mini-batch, {name}: {apart:.1e} of its length from ours")
    print_rates(
        best_of({name: partial(train, update, records, advantages) for name, update in updates.items()}, repeats)
    )


def train(update: OurUpdate | TrlUpdate, records: Sequence[TokenRecord], advantages: np.ndarray) -> int:
    """Returns the tokens that were trained on."""
    update(records, advantages)
    return sum(map(len, records))


if __name__ == "__main__":
    main()
