"""The cost of a whole conversation in the prompt, beside a window of two steps: an iteration of ALFWorld, in its parts.

    python -m benchmarks.conversation --turns 40 --episodes 1

A model with random weights plays each task for all turns. Each line is a process of its own: seconds of the rollout and
of the update, response tokens a second, and the memory that the update adds. Ratios are to window=2.
"""

import argparse
import json
import os
import subprocess
import sys

os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = "1"  # before torch and tokenizers are imported

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.resident_memory import forget_peak, peak_mib
from hgpo_gym.config.compose import load_config
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import RandomPolicy, Request, Sampling
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from hgpo_gym.trainers.update.settings import TrainerSettings

KINDS: dict[str, tuple[str, bool, str]] = {
    "window=2": ("window", False, "step"),
    "conversation, rows=step, nothing kept": ("conversation", False, "step"),
    "conversation, rows=episode, prefixes kept": ("conversation", True, "episode"),
}
"""By name: form of memory, whether prefixes are kept in the rollout, and the rows of the update."""
LONGEST = 32_768


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line a kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, help="measure this alone, and print it as JSON")
    parsed = parser.parse_args(arguments)
    if parsed.kind:
        print(json.dumps(measure(parsed)))
        return
    print(
        f"{'':42}{'prompt':>8}{'kept':>6}{'rollout':>9}{'update':>8}{'both':>7}{'tokens/s':>10}{'MiB':>7}{'ratio':>7}"
    )
    first = None
    for kind in KINDS:
        command = [sys.executable, "-m", "benchmarks.conversation", *(arguments or sys.argv[1:]), "--kind", kind]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        both = found["rollout"] + found["update"]
        first = first or both
        print(
            f"{kind:42}{found['prompt']:8.0f}{found['kept']:6.0%}{found['rollout']:9.1f}{found['update']:8.1f}{both:7.1f}"
            f"{found['tokens'] / both:10.0f}{found['mib']:7.0f}{both / first:7.1f}",
            flush=True,
        )


def measure(parsed: argparse.Namespace) -> dict[str, Any]:
    """Returns seconds of rollout and update, their distinct tokens, prompt lengths and MiB of the update."""
    form, keeps, rows = KINDS[parsed.kind]
    quiet_libraries(threads=1)
    env = ContextWrapper(
        TextVectorEnv("hgpo_gym/ALFWorld-v0", parsed.episodes, 1, split="generated", max_episode_steps=parsed.turns),
        "bare",
        memory=form,
    )
    tasks = env.unwrapped.task_ids[: parsed.episodes]  # type: ignore[attr-defined]
    seeds = [(0, number) for number in range(len(tasks))]
    seen = collect(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds)
    tokenizer = train_tokenizer([step.prompt for step in seen.steps], 1024)
    model = make_tiny_model(
        tokenizer,
        hidden_size=parsed.hidden_size,
        layers=parsed.layers,
        heads=4,
        seed=0,
        max_positions=LONGEST,
        device="cpu",
    )
    policy = LanguageModelPolicy(
        model,
        tokenizer,
        constrain="admissible",
        max_prompt_tokens=LONGEST - 512,
        max_batch_tokens=2048,
        max_cache_tokens=10 * LONGEST,
        prefix_cache_tokens=10 * LONGEST if keeps else 0,
    )
    policy.generate([Request("Go.", ("on", "off"))], Sampling())  # what is imported at the first use is not measured
    started = time.perf_counter()
    rollout = collect(env, policy, Sampling(), task_ids=tasks, seeds=seeds)
    played = time.perf_counter()
    settings = {**load_config("config", [])["trainer"], "rows": rows, "learning_rate": 1e-5, "entropy_coef": 0.0}
    update = PolicyUpdate(policy, None, TrainerSettings(**settings), 1.0)
    advantages = np.random.default_rng(0).normal(size=len(rollout.batch))
    before = time.perf_counter()
    forget_peak()
    floor = peak_mib()
    update(rollout.tokens, rollout.batch, advantages, (0, 0, 0))  # type: ignore[arg-type]
    env.close()
    return {
        "rollout": played - started,
        "update": time.perf_counter() - before,
        "mib": peak_mib() - floor,
        **lengths(rollout),
    }


def lengths(rollout: Rollout) -> dict[str, float]:
    """Returns the mean prompt, the share of prompt tokens that were kept, and the number of tokens of responses."""
    records = [record for record in rollout.tokens if record is not None]
    prompts = sum(len(record.prompt_ids) for record in records)
    return {
        "prompt": prompts / len(records),
        "kept": sum(record.prompt_cached for record in records) / prompts,
        "tokens": sum(len(record.token_ids) for record in records),
    }


if __name__ == "__main__":
    main()
