"""The memory that a run says it will need: the formula against autograd, and sums by hand."""

import pytest
import torch

from benchmarks.published_cost import H100, MODELS, setup, size_of_model
from hgpo_gym.trainers.memory_estimate import GIB, ROOM, lines, phases
from tests.checks.memory_formula import Setting, kept_per_token, size_of


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "bfloat16"},
        {"dtype": "bfloat16"},
        {"lora_rank": 4},
        {"dtype": "bfloat16", "precision": "bfloat16", "lora_rank": 4},
    ],
)
def test_a_layer_keeps_what_the_formula_says(changes):
    """But for the few bytes that it leaves out: four for each norm and head."""
    setting = Setting(hidden=32, heads=4, kv_heads=2, intermediate=80, **changes)
    formula = size_of(setting).kept_per_token(setting.precision)
    assert kept_per_token(setting) == formula + 8 + 4 * 4


@pytest.fixture(scope="module")
def seven():
    return size_of_model(MODELS[1])


def test_all_of_7b_on_four_gpus_fits_only_while_vllm_sleeps(seven):
    """Weights, gradients, Adam's two means and reference are 20 bytes a parameter, shared; what scores, or is copied to
    vLLM, is whole."""
    count = 7_615_616_512
    assert seven.weights == 4 * count
    embeddings = 2 * 4 * 152_064 * 3584
    assert seven.outside == embeddings + 4 * 3584  # and the last norm
    for gpus, scoring, update in ((4, 80.5, 95.0), (8, 66.3, 77.2)):
        found = phases(seven, setup(seven, gpus, "vLLM"))
        copying = sum(found["copying to vLLM"].values())
        assert copying == pytest.approx(16 * count / gpus + 4 * count + 0.3 * H100)
        assert copying / GIB == pytest.approx(scoring, abs=0.1)
        assert sum(found["scoring the reference"].values()) > copying
        assert sum(found["the update"].values()) / GIB == pytest.approx(update, abs=0.1)
        assert found["the update"]["gathered layers"] > 2 * embeddings
    asleep = phases(seven, setup(seven, 4, "vLLM, sleep_level=2"))
    assert max(sum(parts.values()) for parts in asleep.values()) < ROOM * H100
    generation = phases(seven, setup(seven, 4, "transformers"))["generation"]
    assert generation["bfloat16 copies"] == pytest.approx(2 * count, rel=0.08)  # but for the input embedding


def test_a_run_says_what_it_needs_and_what_lowers_it(seven):
    gpu = torch.device("cuda:0")
    memory, warning = lines(seven, setup(seven, 4, "vLLM"), H100, gpu, processes=4)
    assert memory.startswith("Memory: about 95.0 GiB for each of 4 processes, the most in the update (weights 7.1, ")
    assert memory.endswith("cuda:0 has 79.2 GiB.")
    assert "engine.sleep_level=2 (71.2), trainer.max_batch_tokens=16384 (" in warning
    assert len(list(lines(seven, setup(seven, 4, "vLLM, sleep_level=2"), H100, gpu, processes=4))) == 1
