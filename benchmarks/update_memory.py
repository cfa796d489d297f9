"""The memory of an update step, measured and computed: against batch tokens, sequence length, and what saves memory.

    python -m benchmarks.update_memory              # measure small models, beside the formula
    python -m benchmarks.update_memory --examples   # the formula for Qwen2.5-1.5B and 7B, measured where a GPU has room

On a CPU (Linux) the peak of resident memory over what the process had before it made the model, each setting in a
process of its own; on a GPU `torch.cuda.max_memory_allocated`. The formula is explained in docs/guides/gpu_memory.md.
"""

import argparse
import gc
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from benchmarks.resident_memory import forget_peak, peak_mib
from hgpo_gym.advantages import StepBatch
from hgpo_gym.config.compose import load_config
from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.policies.huggingface import train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from hgpo_gym.trainers.update.settings import TrainerSettings
from tests.checks.memory_formula import Setting, formula, make_model

MIB = 2**20
BASE = Setting()
MEASURED = [
    *(replace(BASE, tokens=tokens, checkpointing=saved) for saved in (False, True) for tokens in (512, 1024, 2048)),
    *(replace(BASE, length=length) for length in (128, 1024)),
    replace(BASE, layers=8),
    replace(BASE, layers=8, checkpointing=True),
    replace(BASE, intermediate=512),
    replace(BASE, intermediate=2048, response=0.03, checkpointing=True),
    *(replace(BASE, vocabulary=32768, layers=2, response=share) for share in (0.125, 0.5)),
    replace(BASE, vocabulary=32768, layers=2, response=0.5, checkpointing=True),
    *(replace(BASE, hidden=512, layers=8, tokens=512, optimizer=name) for name in ("adamw", "adamw_8bit")),
    *(replace(BASE, hidden=512, layers=8, tokens=512, precision="bfloat16", checkpointing=s) for s in (False, True)),
    replace(BASE, hidden=512, layers=8, tokens=512, dtype="bfloat16"),
    *(replace(BASE, hidden=512, layers=8, tokens=512, lora_rank=16, checkpointing=saved) for saved in (False, True)),
    replace(BASE, hidden=512, layers=8, tokens=512, lora_rank=16, dtype="bfloat16", precision="bfloat16"),
]


QWEN: dict[str, dict[str, Any]] = {
    "Qwen2.5-1.5B": {
        "hidden": 1536, "intermediate": 8960, "layers": 28, "heads": 12, "kv_heads": 2, "vocabulary": 151936,
    },
    "Qwen2.5-7B": {
        "hidden": 3584, "intermediate": 18944, "layers": 28, "heads": 28, "kv_heads": 4, "vocabulary": 152064,
        "tied": False,
    },
}  # fmt: skip
"""From their config.json."""
AUTOCAST = {"precision": "bfloat16", "checkpointing": True}
WAYS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16 autocast": {"precision": "bfloat16"},
    "the same, checkpointing (trainer=pretrained)": AUTOCAST,
    "the same, adamw_8bit": {**AUTOCAST, "optimizer": "adamw_8bit"},
    "LoRA 32 beside bfloat16, checkpointing": {**AUTOCAST, "dtype": "bfloat16", "lora_rank": 32},
    "QLoRA 32, checkpointing": {**AUTOCAST, "dtype": "bfloat16", "lora_rank": 32, "four_bits": True},
}


def measure(setting: Setting) -> float:
    """MiB at the peak of an update of two micro-batches: the optimiser has its state, and while the second is computed
    there are the first one's gradients."""
    tiny = replace(setting, hidden=8 * setting.heads, intermediate=32, layers=1, vocabulary=64, tokens=64, length=64)
    _update(tiny)  # libraries are loaded then, and have what they allocate once
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated() / MIB
        _update(setting)
        return torch.cuda.max_memory_allocated() / MIB - before
    forget_peak()
    before = peak_mib()
    _update(setting)
    return peak_mib() - before


def _update(setting: Setting) -> None:
    """Measure a new model. The peak is reset before it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = make_model(setting)
    policy = LanguageModelPolicy(model, train_tokenizer(["a b c"], 300), constrain="none")
    response = max(1, int(setting.length * setting.response))
    ids = np.random.default_rng(0).integers(setting.vocabulary, size=setting.length)
    record = TokenRecord(ids[:-response], ids[-response:], np.full(response, -9.0, dtype=np.float32))
    records = [record] * (2 * setting.tokens // setting.length)
    changes = {
        "mini_batch_size": len(records),
        "max_batch_tokens": setting.tokens,
        "precision": setting.precision,
        "gradient_checkpointing": setting.checkpointing,
        "optimizer": setting.optimizer,
    }
    settings = TrainerSettings(**load_config("config", [])["trainer"] | changes)
    update = PolicyUpdate(policy, None, settings, 1.0)
    short = TokenRecord(ids[:1], ids[:1], record.logprobs[:1])
    update([short], _episodes(1), np.ones(1), (0,))  # makes the optimiser's state
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        forget_peak()
    update(records, _episodes(len(records)), np.ones(len(records)), (1,))


def _episodes(count: int) -> StepBatch:
    """Return a batch of episodes with one step each."""
    numbers, zeros = np.arange(count), np.zeros(count)
    return StepBatch(numbers, numbers, np.zeros(count, dtype=np.int64), zeros, numbers[:, None], zeros)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", action="store_true", help="what fits: published sizes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(measure(Setting(**json.loads(arguments.one))))
    elif arguments.examples:
        print_examples()
    else:
        print_measurements()


def print_examples() -> None:
    """The memory of published sizes, by the formula, and measured if the formula says that a GPU has room."""
    room = 0.9 * torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0
    names = ["model", "how", "weights", "gradients", "optimiser", "passes", "total, GiB", *["measured"] * bool(room)]
    print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    for model, size in QWEN.items():
        for how, changes in WAYS.items():
            setting = replace(BASE, **{**size, **changes}, tokens=32768, length=4608, response=0.11)
            parts = formula(setting)
            columns = [parts.weights, parts.gradients, parts.optimizer, parts.passes, parts.total]
            shown = [f"{value / 2**30:.1f}" for value in columns]
            if room:
                shown.append(f"{measure(setting) / 1024:.1f}" if parts.total < room and _can(setting) else "")
            print(f"| {model} | {how} | {' | '.join(shown)} |", flush=True)


def print_measurements() -> None:
    """With the formula beside them."""
    print("| setting | measured MiB | formula MiB | of which weights, gradients, optimiser |")
    print("| --- | --- | --- | --- |")
    for setting in filter(_can, MEASURED):
        measured = measure(setting) if torch.cuda.is_available() else _measure_apart(setting)
        parts = formula(setting)
        columns = [measured, parts.total / MIB, (parts.total - parts.passes) / MIB]
        print(f"| {setting.name} | {' | '.join(f'{value:.0f}' for value in columns)} |", flush=True)


def _can(setting: Setting) -> bool:
    """Return True if it can be measured: only the formula knows weights in 4 bits."""
    return not setting.four_bits and (
        setting.optimizer != "adamw_8bit" or importlib.util.find_spec("bitsandbytes") is not None
    )


def _measure_apart(setting: Setting) -> float:
    """MiB, in a process of its own, in which what is freed goes back to the system at once, so that the peak is that of
    what is in use."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    child = [sys.executable, "-m", "benchmarks.update_memory", "--one", json.dumps(asdict(setting))]
    return float(subprocess.run(child, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
