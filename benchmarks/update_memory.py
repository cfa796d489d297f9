"""The memory of an update step, measured and computed: against batch tokens, sequence length, and what saves memory.

    python -m benchmarks.update_memory              # measure, each setting in a process of its own, beside the formula
    python -m benchmarks.update_memory --examples   # the formula for Qwen2.5-1.5B and 7B

On a CPU (Linux) the peak of resident memory over what the process had before it made the model, on a GPU
`torch.cuda.max_memory_allocated`. The formula is explained in docs/memory.md.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from benchmarks.memory import forget_peak, peak_mib
from benchmarks.memory_formula import Setting, formula, make_model
from hgpo_gym.config import load_config, plain
from hgpo_gym.trainers.policies.base import TokenRecord
from hgpo_gym.trainers.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.policies.models import train_tokenizer
from hgpo_gym.trainers.settings import TrainerSettings
from hgpo_gym.trainers.update import PolicyUpdate

MIB = 2**20
BASE = Setting()
MEASURED = [
    *(replace(BASE, tokens=tokens, checkpointing=saved) for saved in (False, True) for tokens in (512, 1024, 2048)),
    *(replace(BASE, length=length) for length in (128, 1024)),
    replace(BASE, layers=8),
    replace(BASE, layers=8, checkpointing=True),
    replace(BASE, intermediate=512),
    replace(BASE, intermediate=2048, answer=0.03, checkpointing=True),
    *(replace(BASE, vocabulary=32768, layers=2, answer=share) for share in (0.125, 0.5)),
    replace(BASE, vocabulary=32768, layers=2, answer=0.5, checkpointing=True),
    *(replace(BASE, hidden=512, layers=8, tokens=512, optimizer=name) for name in ("adamw", "adamw_8bit")),
    *(replace(BASE, hidden=512, layers=8, tokens=512, precision="bfloat16", checkpointing=s) for s in (False, True)),
    replace(BASE, hidden=512, layers=8, tokens=512, dtype="bfloat16"),
    *(replace(BASE, hidden=512, layers=8, tokens=512, lora_rank=16, checkpointing=saved) for saved in (False, True)),
    replace(BASE, hidden=512, layers=8, tokens=512, lora_rank=16, dtype="bfloat16", precision="bfloat16"),
]


QWEN = {
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
    """MiB at the peak of an update of two micro-batches, after a small one: the optimiser has its state, and the first
    micro-batch's gradients are while the second is computed."""
    on_gpu = torch.cuda.is_available()
    tokenizer = train_tokenizer(["a b c"], 300)
    torch.nn.functional.linear(torch.ones(64, 64), torch.ones(64, 64))  # what libraries allocate once
    gc.collect()
    before = peak_mib()
    policy = LanguageModelPolicy(make_model(setting).to("cuda" if on_gpu else "cpu"), tokenizer)
    answer = int(setting.length * setting.answer)
    ids = np.random.default_rng(0).integers(setting.vocabulary, size=setting.length)
    record = TokenRecord(ids[:-answer], ids[-answer:], np.full(answer, -9.0, dtype=np.float32))
    records = [record] * (2 * setting.tokens // setting.length)
    settings = TrainerSettings(
        **plain(load_config("config", []).trainer)
        | {
            "mini_batch_size": len(records),
            "max_batch_tokens": setting.tokens,
            "precision": setting.precision,
            "gradient_checkpointing": setting.checkpointing,
            "optimizer": setting.optimizer,
        }
    )
    update = PolicyUpdate(policy, None, settings, 1.0)
    update([TokenRecord(ids[:1], ids[:1], record.logprobs[:1])], np.ones(1), (0,))
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    else:
        forget_peak()
    update(records, np.ones(len(records)), (1,))
    return torch.cuda.max_memory_allocated() / MIB if on_gpu else peak_mib() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", action="store_true", help="what fits, computed")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(measure(Setting(**json.loads(arguments.one))))
    elif arguments.examples:
        print_examples()
    else:
        print_measurements()


def print_examples() -> None:
    """What published sizes take, by the formula."""
    print("| model | how | weights | gradients | optimiser | passes | total, GiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for model, size in QWEN.items():
        for how, changes in WAYS.items():
            parts = formula(replace(BASE, **size, **changes, tokens=32768, length=4608, answer=0.11))
            columns = (parts.weights, parts.gradients, parts.optimizer, parts.passes, parts.total)
            print(f"| {model} | {how} | {' | '.join(f'{value / 2**30:.1f}' for value in columns)} |")


def print_measurements() -> None:
    """Each setting in a process of its own, with the formula beside it."""
    # So that what is freed goes back to the system at once, and the peak is that of what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    print("| setting | measured MiB | formula MiB | of which weights, gradients, optimiser |")
    print("| --- | --- | --- | --- |")
    for setting in MEASURED:
        child = [sys.executable, "-m", "benchmarks.update_memory", "--one", json.dumps(asdict(setting))]
        result = subprocess.run(child, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        parts = formula(setting)
        columns = [float(result.stdout), parts.total / MIB, (parts.total - parts.passes) / MIB]
        print(f"| {setting.name} | {' | '.join(f'{value:.0f}' for value in columns)} |", flush=True)


if __name__ == "__main__":
    main()
