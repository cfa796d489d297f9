"""The benchmark of credit assignment: its probes, its scores, and what it says to wrong submissions."""

import csv
import gzip
import re

import numpy as np
import pytest

from hgpo_gym import creditbench
from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.statistics import discounted_returns
from hgpo_gym.cli.main import main
from hgpo_gym.creditbench import data
from hgpo_gym.creditbench.data import DIGESTS, GAMMA, digest, digests
from hgpo_gym.creditbench.making import MAZES, make_probes


@pytest.fixture(scope="module")
def small():
    return make_probes(1, MAZES, tasks=2, episodes=128)


@pytest.fixture(scope="module")
def sampled():
    return make_probes(1, ["search"], tasks=4, episodes=16)


@pytest.mark.slow
@pytest.mark.promise("The probes of the benchmark are the same bits on every machine.")
def test_the_public_probes_have_their_digests():
    """Those that are made in seconds. `creditbench.probes` checks all of them wherever it makes them."""
    for name in (*MAZES, "secret_word", "search"):
        assert digests(make_probes(0, [name])) == {name: DIGESTS[name]}


def test_the_sample_in_the_package_is_what_its_seed_makes():
    made = make_probes(0, ["maze_halls", "search"], tasks=2, episodes=16)
    assert digests(creditbench.sample()) == digests(made)
    assert digests(make_probes(1, ["search"], tasks=2, episodes=16))["search"] != digests(made)["search"]


def test_the_language_model_was_asked_in_every_situation_of_every_task():
    made = make_probes(1, ["maze_halls"], tasks=18, episodes=16)
    assert made[-1].stage == "language_model"
    back = [made[-1].texts[action] == "go back" for action in made[-1].columns["action"]]
    # The uniform policy goes back in half the corridors, and the model in one of ten.
    assert 0.05 < np.mean(back) < 0.3


def test_public_probes_that_are_not_those_of_the_version_are_named(monkeypatch, tmp_path, small):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path))
    monkeypatch.setattr("hgpo_gym.creditbench.making.make_probes", lambda seed: small)
    with pytest.raises(ValueError, match=r"the probes of maze_halls, .*, search are not those of version 1"):
        creditbench.probes()


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


def test_a_sampled_truth_scores_1_less_its_noise_and_a_second_draw_scores_the_ceiling(small):
    generator, exact = np.random.default_rng(0), small[1].columns["advantage"]

    def draw():
        return exact + generator.normal(scale=0.5, size=len(exact))

    columns = small[1].columns | {"advantage": draw(), "standard_error": np.full(len(exact), 0.5, dtype=np.float32)}
    # Of most steps the truth is not known, and what a method says there is not read.
    columns["advantage"][::2] = np.nan
    probe = creditbench.Probe("maze", "middle", columns, small[1].texts)
    perfect = creditbench.score(lambda _: np.where(np.arange(len(exact)) % 2, exact, 9.0), name="truth", on=[probe])
    second = creditbench.score(lambda _: draw(), name="second draw", on=[probe])
    assert perfect.value == pytest.approx(1.0, abs=0.02)
    assert second.value == pytest.approx(second.mean("ceiling"), abs=0.02)
    assert second.value < 0.95


def test_sampled_advantages_are_0_on_average_and_returns_rise_with_them(sampled):
    """E[A] = 0 and E[G A] = E[A^2] here, too, with sampled A: its noise is independent of the returns."""
    for probe in sampled:
        columns = {name: values[probe.known] for name, values in probe.columns.items()}
        true, returns = columns["advantage"], discounted_returns(probe.batch(4), GAMMA)[probe.known]
        square = true**2 - columns["standard_error"].astype(np.float64) ** 2
        for zero in (true, true * returns - square):
            by_episode = np.bincount(columns["episode"], weights=zero)
            assert abs(by_episode.mean()) < 4 * by_episode.std() / np.sqrt(len(by_episode)), probe.name


def test_a_file_scores_as_its_function_does_and_its_mistakes_are_named(small, tmp_path):
    small = small[:1]

    def method(batch):
        return estimate("gigpo", batch)

    file = tmp_path / "gigpo.csv"
    creditbench.write_template(file, method, on=small)
    by_file, by_function = creditbench.score_file(file, on=small), creditbench.score(method, name="gigpo", on=small)
    assert (by_file.name, by_file.value, by_file.interval) == ("gigpo", by_function.value, by_function.interval)

    compressed = tmp_path / "gigpo.csv.gz"
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    assert creditbench.score_file(compressed, on=small).value == by_function.value

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
    monkeypatch.setattr("hgpo_gym.cli.creditbench.probes", lambda seed: small[:2])
    out = tmp_path / "scores.csv"
    main(["creditbench", "grpo", "nested_bellman history_length=1", "--seed", "1", "--out", str(out)])
    rows = list(csv.DictReader(out.open()))
    assert [row["method"] for row in rows] == ["nested_bellman history_length=1", "grpo"]
    assert rows[0]["maze_halls"] == rows[0]["score"]  # the mean over one environment
    assert "nested_bellman" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["creditbench", "gae", "--seed", "1"])
    assert "gae needs the column 'value'" in capsys.readouterr().err


def test_the_command_makes_probes_and_names_their_file_and_digest(monkeypatch, tmp_path, capsys, small):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path))
    monkeypatch.setattr("hgpo_gym.creditbench.making.make_probes", lambda seed: small)
    main(["creditbench", "make", "--seed", "7"])
    printed = capsys.readouterr().out
    path = next(tmp_path.rglob("probes.npz"))
    assert digest(digests(small)) in printed
    assert str(path) in printed.replace("\n", "")
    assert [probe.name for probe in data.read(path)] == [probe.name for probe in small]
