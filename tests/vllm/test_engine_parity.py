"""Architectures whose weights have other names, parts or heads in vLLM, and those that it must not be given."""

import subprocess
import sys

ASKED = ["Qwen3-MoE", "Gemma 2", "Gemma 3 with vision", "OLMo"]


def test_architectures_are_played_by_the_trainers_weights_or_refused():
    """In a new process: vLLM wants a model with experts to be the first."""
    command = [sys.executable, "-m", "benchmarks.engine_parity", "--engine", "vllm", "--architectures", *ASKED]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    lines = [line.strip("| ").split(" | ") for line in process.stdout.splitlines() if line.startswith("| ")]
    table = {name: columns for name, *columns in lines[2:]}
    for name in ASKED[:3]:
        assert max(map(float, table[name])) < 0.01, name
    refused = {name: reason for name, (first, reason) in table.items() if first == "refused"}
    assert refused.keys() == {"OLMo", "Qwen3-MoE, random experts", "Qwen3-MoE, experts not packed"}
    assert "OlmoForCausalLM by the class of transformers" in refused["OLMo"]
    assert "not loaded: model.layers.0.mlp.experts." in refused["Qwen3-MoE, random experts"]
    assert "0.1 are allowed in float32" in refused["Qwen3-MoE, experts not packed"]
