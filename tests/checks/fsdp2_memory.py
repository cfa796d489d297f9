"""The memory of FSDP2 by torch's profiler, beside the formula: a process of torchrun. Prints JSON."""

import json
from collections.abc import Callable, Iterable

import numpy as np
import torch

from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.policies.huggingface import checkpoint_activations, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import computing_in, score
from hgpo_gym.processes import SeveralProcesses
from hgpo_gym.trainers.memory_estimate import Setup, phases
from hgpo_gym.trainers.update.distribute import distribute
from tests.checks.memory_formula import Setting, make_model, size_of

SETTING = Setting(intermediate=2048, layers=6, vocabulary=12000, tied=False, tokens=2048, precision="bfloat16")
RESPONSE = 8


def least_peak(function: Callable[[], object]) -> int:
    """The least of three peaks: on a busy machine gloo gives layers back late, which only adds."""
    return min(peak(function) for _ in range(3))


def peak(function: Callable[[], object]) -> int:
    """Bytes that are in use at most meanwhile, over those before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return int(np.cumsum(changes).max())


def local(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of this process' parts."""
    return sum(part.nbytes for part in (getattr(tensor, "_local_tensor", tensor) for tensor in tensors))


def main() -> None:
    torch.set_num_threads(1)
    processes = SeveralProcesses("fsdp2", on_cpu=True)
    model = make_model(SETTING)
    checkpoint_activations(model)
    policy = LanguageModelPolicy(model, train_tokenizer(["a b c"], 300), constrain="none")
    weights = distribute(policy, processes)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = np.random.default_rng(0).integers(SETTING.vocabulary, size=SETTING.length)
    record = TokenRecord(ids[:-RESPONSE], ids[-RESPONSE:], np.zeros(RESPONSE, dtype=np.float32))
    records = [record] * (SETTING.tokens // SETTING.length)

    def passes() -> None:
        model.train()
        with computing_in(SETTING.precision, model):
            result = weights.likelihood(records, temperature=1.0)
        result.logprobs.sum().backward()

    def scoring() -> None:
        with weights.gathered():
            score(policy, records, temperature=1.0, max_batch_tokens=SETTING.tokens, precision=SETTING.precision)

    passes()
    measured = {"gradients": local(weight.grad for weight in model.parameters() if weight.grad is not None)}
    optimizer.step()
    measured |= {
        "weights": local(model.parameters()),
        "optimiser": local(
            value for state in optimizer.state.values() for key, value in state.items() if key != "step"
        ),
        "scoring": least_peak(scoring),
        "update": least_peak(passes),
    }
    size = size_of(SETTING)
    setup = Setup("bfloat16", checkpointing=True, optimizer="adamw", max_batch_tokens=SETTING.tokens, copies=2)
    found = phases(size, setup)
    responses = len(records) * RESPONSE
    update, computed = found["the update"], size.passes(SETTING.tokens, responses, "bfloat16", checkpointing=True)
    formula = {
        **{name: update[name] for name in ("weights", "optimiser", "gradients")},
        "scoring": size.weights + size.scoring(SETTING.tokens, responses, "bfloat16"),
        "update": update["gathered layers"] + computed,
    }
    if processes.main:
        print(
            json.dumps({name: {"measured": measured[name], "formula": formula[name]} for name in formula}), flush=True
        )
    processes.close()


if __name__ == "__main__":
    main()
