"""benchmarks.gpu on a CPU: its parts at a tiny size, and a refusal without a GPU."""

import pytest
import torch

from benchmarks import gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(("device", "message"), [("cuda", "sees no CUDA GPU here"), ("cpu", "add --tiny")])
def test_without_a_gpu_the_benchmark_is_refused_with_a_remedy(device, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gpu", "--device", device])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_checks_pass_and_the_preset_is_measured_on_a_cpu(tmp_path):
    assert {row["check"]: row["result"] for row in gpu.checks("cpu", tmp_path)}.items() >= {
        "bfloat16 passes": "passed", "checkpoint to the CPU and back": "passed", "LoRA": "passed",
        "flash attention": "passed", "FSDP2 in a group of one process": "passed",
    }.items()  # fmt: skip
    rows = {row["part"]: row for row in gpu.preset("cpu", True, tmp_path)}
    assert rows.keys() == {"rollout", "log-probabilities", "update"}
    assert all(row["seconds"] > 0 and row["share of peak arithmetic"] > 0 for row in rows.values())
    assert rows["update"]["formula GiB"] > 0
