"""benchmarks.gpu on a CPU: the same code with small sizes, and a refusal where there is no GPU."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

from benchmarks import gpu
from tests.support import warm
from tests.support.small_models import make_policy


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    for arguments, said in (([], "sees no CUDA GPU here"), (["--device", "cpu"], "is for a model of its size")):
        monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
        with pytest.raises(SystemExit) as ended:
            gpu.main()
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert said in told
        assert "--tiny" in told


@pytest.mark.timeout(600)
def test_everything_runs_with_small_sizes_on_a_cpu(tmp_path):
    make_policy().save(tmp_path / "weights")
    out = tmp_path / "out.json"
    command = [*warm.python(), "-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--out", str(out)]
    ended = subprocess.run(
        [*command, "--weights", str(tmp_path / "weights")],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr + ended.stdout
    results = json.loads(out.read_text())
    assert list(results) == ["device", "checks", "preset", "pretrained"]
    assert {row["result"] for row in results["checks"]} == {"passed"}
    assert len(results["checks"]) >= 3
    assert [row["part"] for row in results["preset"]] == ["rollout", "log-probabilities", "update"]
    for row in results["preset"]:
        assert row["share of peak arithmetic"] > 0  # how much of it, the machine decides
        assert row["seconds"] > 0
    assert results["preset"][2]["formula GiB"] > 0
    assert [row["iteration"] for row in results["pretrained"]] == [1, 2, 3]
    assert all(math.isfinite(row["kl_behaviour"]) for row in results["pretrained"] if row["kl_behaviour"] != "")
    assert "## preset" in ended.stdout
