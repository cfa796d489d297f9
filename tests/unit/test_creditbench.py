"""The benchmark of credit assignment: its probes, its scores, and what it says to wrong submissions."""

import csv
import re

import numpy as np
import pytest

from hgpo_gym import creditbench
from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.statistics import discounted_returns
from hgpo_gym.cli.main import main
from hgpo_gym.creditbench.data import DIGEST, GAMMA, digest
from hgpo_gym.creditbench.making import make_probes


@pytest.fixture(scope="module")
def small():
    return make_probes(1, tasks=2, episodes=128)


@pytest.mark.slow
@pytest.mark.promise("The probes of the benchmark are the same bits on every machine.")
def test_the_public_probes_have_their_digest_and_other_seeds_another(small):
    assert digest(make_probes(0)) == DIGEST
    assert (
        digest(small) == digest(make_probes(1, tasks=2, episodes=128)) != digest(make_probes(2, tasks=2, episodes=128))
    )


def test_true_advantages_are_0_on_average_and_returns_rise_with_them_by_as_much(small):
    """E[A] = 0 and E[G A] = E[A^2], as E[G | history, action] = V + A. Episodes are independent."""
    for probe in small:
        batch, true = probe.batch(16), probe.columns["advantage"]
        for zero in (true, true * (discounted_returns(batch, GAMMA) - true)):
            by_episode = np.bincount(batch.trajectory, weights=zero)
            assert abs(by_episode.mean()) < 4 * by_episode.std() / np.sqrt(len(by_episode)), probe.name


def test_the_truth_scores_1_a_constant_factor_changes_nothing_and_noise_scores_0(small):
    truth = iter([probe.columns["advantage"] for probe in small for _ in range(3)])
    perfect = creditbench.score(lambda _: 7.0 * next(truth), name="truth", on=small)
    assert perfect.value == pytest.approx(1.0)
    assert perfect.mean("rank") == pytest.approx(1.0)
    assert perfect.mean("signs") == 1.0
    assert perfect.mean("bias2") == pytest.approx(0.0, abs=1e-9)
    assert perfect.mean("variance") == pytest.approx(0.0, abs=1e-9)
    generator = np.random.default_rng(0)
    noise = creditbench.score(lambda batch: generator.normal(size=len(batch)), name="noise", on=small)
    assert abs(noise.value) < 0.02
    assert noise.interval[0] <= noise.value <= noise.interval[1]
    nothing = creditbench.score(lambda batch: np.zeros(len(batch)), name="nothing", on=small)
    assert (nothing.value, nothing.mean("rank"), nothing.mean("nonzero")) == (0.0, 0.0, 0.0)
    assert nothing.mean("signs") == 0.5


def test_a_file_scores_as_its_function_does_and_its_mistakes_are_named(small, tmp_path):
    small = small[:1]

    def method(batch):
        return estimate("gigpo", batch)

    file = tmp_path / "gigpo.csv"
    creditbench.write_template(file, method, on=small)
    by_file, by_function = creditbench.score_file(file, on=small), creditbench.score(method, name="gigpo", on=small)
    assert (by_file.name, by_file.value, by_file.interval) == ("gigpo", by_function.value, by_function.interval)

    lines = list(csv.reader(file.open()))
    wrong = tmp_path / "wrong.csv"
    for changed, message in (
        (lines[1:], "its first line is"),
        (lines[:-1], "lacks 1 of"),
        ([*lines[:2], [*lines[2][:3], "nan"], *lines[3:]], "line 3: the advantage is nan, not a finite number"),
        ([*lines[:2], lines[1], *lines[3:]], "line 3: row 0 of maze_halls/early with group_size 4 stands there twice"),
        ([*lines[:2], ["maze", "4", "0", "1"], *lines[3:]], "line 3: there is no row 0 of maze with group_size 4"),
        ([*lines[:2], lines[2][:2], *lines[3:]], "line 3: 'maze_halls/early,4' is not probe,group_size,row,advantage"),
    ):
        with wrong.open("w", newline="") as opened:
            csv.writer(opened).writerows(changed)
        with pytest.raises(ValueError, match=re.escape(message)):
            creditbench.score_file(wrong, on=small)


def test_wrong_advantages_of_a_function_are_named(small):
    with pytest.raises(ValueError, match=r"mine on maze_halls/early with group_size 4: advantages of shape \(3,\)"):
        creditbench.score(lambda _: np.zeros(3), name="mine", on=small)
    with pytest.raises(ValueError, match="the advantage of row 0 is nan, not a finite number"):
        creditbench.score(lambda batch: np.full(len(batch), np.nan), name="mine", on=small)


def test_the_command_prints_the_best_method_first(monkeypatch, tmp_path, capsys, small):
    monkeypatch.setattr("hgpo_gym.cli.creditbench.probes", lambda seed: small[:2] if seed == 1 else None)
    out = tmp_path / "scores.csv"
    main(["creditbench", "grpo", "nested_bellman", "--seed", "1", "--out", str(out)])
    assert [row[0] for row in csv.reader(out.open())] == ["method", "nested_bellman", "grpo"]
    assert "nested_bellman" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["creditbench", "gae", "--seed", "1"])
    assert "gae needs the column 'value'" in capsys.readouterr().err
