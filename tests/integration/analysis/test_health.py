"""Health: signs of broken runs are found, healthy ones have none; by the trainer, the report and the command."""

import io
import json
import re
import shutil

import numpy as np
import pytest
from rich.console import Console

from hgpo_gym.analysis.report import write_report
from hgpo_gym.config.compose import load_config
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.evaluation import eval_drop
from hgpo_gym.runs.diagnostics import CHECKS, Diagnostic, diagnose
from hgpo_gym.runs.directory import flatten, read_config, read_metrics, read_summary
from hgpo_gym.runs.metric_table import METRICS
from tests.integration.trainers.test_training import SMALL
from tests.support.commands import run as command
from tests.support.documents import check_command
from tests.support.small_runs import finished, train

SETTINGS = {
    "trainer.max_grad_norm": 1.0, "trainer.learning_rate": 0.5, "rollout.num_tasks": 4, "rollout.group_size": 16,
    "learner.name": "policy_gradient",
}  # fmt: skip
GOOD = {"success": 0.4, "kl_behaviour": 0.01, "entropy": 0.4, "clip_fraction": 0.05, "gradient_norm": 0.5} | {
    "zero_variance_groups": 0.2, "valid_action_rate": 0.99, "truncated_fraction": 0.0, "mismatch_kl": 1e-9
}  # fmt: skip


def history(*changes):
    """The metrics of iterations that are good but for these changes."""
    return [{"iteration": number, **GOOD, **change} for number, change in enumerate(changes, start=1)]


def found(*changes, **settings):
    return {sign.check.metric: sign for sign in diagnose(history(*changes), {**SETTINGS, **settings})}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A diverging run, one without signal and a healthy one, with the output of each."""
    output, folder = {}, tmp_path_factory.mktemp("runs")
    settings = {
        "diverging": ["model=tiny", *SMALL, "trainer.kl_coef=0", "trainer.learning_rate=1", "trainer.iterations=8"],
        "silent": ["env.sections=4", "env.max_episode_steps=5", "trainer.iterations=5"],
        "healthy": ["env.sections=1", "rollout.num_tasks=4", "rollout.group_size=8", "trainer.iterations=12"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name, overrides in settings.items():
            shown = io.StringIO()
            train(folder / name, *overrides, progress=Progress(Console(file=shown, width=500)))
            output[name] = shown.getvalue()
    return folder, output


@pytest.mark.parametrize(
    ("metric", "good", "bad"),
    [
        ("kl_behaviour", 0.1, 1e28), ("kl_reference", 1.0, 6.0), ("clip_fraction", 0.5, 0.9),
        ("gradient_norm", 9.0, 11.0), ("zero_variance_groups", 0.8, 1.0), ("entropy", 0.05, 0.0),
        ("valid_action_rate", 0.6, 0.1), ("truncated_fraction", 0.05, 0.4), ("prompt_cut_share", 0.0, 0.5),
        ("mismatch_kl", 0.001, 0.1), ("evaluation_drop", 2.0, 4.1),
    ],
)  # fmt: skip
def test_a_metric_is_warned_of_beyond_its_limit_and_not_before(metric, good, bad):
    assert not found(*[{metric: good}] * 6)
    sign = found(*[{metric: good}] * 3, *[{metric: bad}] * 3)[metric]
    assert sign.worst == bad
    assert sign.iterations[-1] == 6
    assert 4 <= sign.iterations[0] == 3 + sign.check.in_a_row
    assert METRICS[metric].title in str(sign)
    assert "Likely cause: " in str(sign)
    assert "Try: " in str(sign)


def test_a_mismatch_that_is_corrected_for_is_no_sign():
    changes = [{"mismatch_kl": 0.1}] * 3
    assert "mismatch_kl" in found(*changes, **{"correction.name": "none"})
    assert "mismatch_kl" not in found(*changes, **{"correction.name": "token"})


def test_every_check_is_of_a_metric_that_is_explained_and_each_metric_has_one():
    names = [check.metric for check in CHECKS]
    assert set(names) <= METRICS.keys()
    assert len(set(names)) == len(names)


def test_the_remedies_name_settings_and_commands_that_exist():
    """A setting without a value is one of `hgpo-gym train`; a group with a choice is taken as it stands."""
    from hgpo_gym.config.compose import load_run

    known = flatten(load_run([]).resolved)
    remedies = [remedy for check in CHECKS for remedy in check.remedies]
    assert {"trainer.learning_rate", "rollout.max_new_tokens"} <= {remedy.setting for remedy in remedies}
    for remedy in remedies:
        assert not remedy.setting or remedy.setting in known or remedy.setting in (
            "env.max_episode_steps", "correction", "prompt", "sampler", "shaping"
        )  # fmt: skip
        if remedy.value is not None and remedy.setting != "shaping":
            check_command(["train", f"{remedy.setting}={remedy.value}"])
        for word in remedy.text.replace("(", " ").replace(")", " ").split():
            if "=" in word and not word.startswith(("iteration", "shaping")):
                check_command(["train", word])


def test_a_solved_task_may_have_no_signal_and_no_entropy():
    assert not found(*[{"success": 0.95, "zero_variance_groups": 1.0, "entropy": 0.001}] * 6)
    assert found(*[{"success": 0.2, "zero_variance_groups": 1.0, "entropy": 0.001}] * 6).keys() == {
        "zero_variance_groups", "entropy"
    }  # fmt: skip


def test_iterations_without_a_metric_do_not_hold():
    """An update that had nothing to learn from has no entropy."""
    low = {"entropy": 0.0}
    without = [{key: value for key, value in line.items() if key != "entropy"} for line in history({})]
    assert not diagnose([*history(low), *without, *history(low)], SETTINGS)
    assert not diagnose([], SETTINGS)


def test_falling_success_is_distinguished_from_chance():
    """Half of 64 episodes after 5 iterations is known to 3 points; a fall of 8 is chance, one to a quarter is not."""
    steady = [{"success": 0.5}] * 10
    assert not found(*steady, *[{"success": 0.42}] * 5)
    sign = found(*steady, *[{"success": 0.1}] * 5)["success"]
    assert sign.worst == pytest.approx(0.1)
    assert sign.iterations[-1] == 15
    assert not found(*[{"success": 0.05}] * 5, *[{"success": 0.0}] * 5), "it has never had success to lose"
    assert not found(*[{"success": share} for share in (0.25, 0.0) * 12], **{"rollout.group_size": 1})
    few = {"first_round_episodes": 4}  # the number of episodes of which success is the mean
    assert not found(*[{"success": share, **few} for share in (0.25, 0.0) * 12])


def test_an_evaluation_that_falls_is_measured_by_what_chance_would_do(tmp_path):
    """61.4 % of 140 episodes and 37.1 % differ by four standard errors; a run counts its first evaluation too."""
    shares = [{"success": success, "episodes": 140} for success in (0.614, 0.5, 0.371)]
    middle = (0.614 + 0.371) / 2
    assert eval_drop(shares) == pytest.approx((0.614 - 0.371) / np.sqrt(middle * (1 - middle) / 70))
    assert 4 < eval_drop(shares) < 4.2
    assert eval_drop(shares[:1]) == 0.0
    assert eval_drop([{"success": share, "episodes": 10} for share in (0.0, 1.0)]) == 0.0
    assert eval_drop([{"success": share, "episodes": 8} for share in (1.0, 0.0)]) == pytest.approx(4.0)
    finished(tmp_path)
    evaluations = read_summary(tmp_path)["evaluations"]
    drops = [line["evaluation_drop"] for line in read_metrics(tmp_path) if "evaluation_drop" in line]
    assert drops == [eval_drop(evaluations[:2]), eval_drop(evaluations)]


def test_evaluations_that_differ_by_chance_rarely_count_as_fallen():
    """However many there are; a fall that chance does not make is found among many too."""
    random, warned = np.random.default_rng(0), 0
    for _ in range(200):
        flat = [{"success": share, "episodes": 200} for share in random.binomial(200, 0.5, size=41) / 200]
        warned += "evaluation_drop" in found(*({"evaluation_drop": eval_drop(flat[: i + 1])} for i in range(1, 41)))
    assert warned <= 10
    many = [{"evaluation_drop": value} for value in (*[0.0] * 39, 6.0)]
    assert found(*many)["evaluation_drop"].seen.startswith("fall in evaluation 6 (above 4.3")
    assert "evaluation_drop" not in found(*many[:39], {"evaluation_drop": 4.0})


def test_a_limit_that_chance_sets_is_not_called_half_of_the_best():
    few = {"first_round_episodes": 8}
    sign = found(*[{"success": 0.5, **few}] * 6, *[{"success": 0.05, **few}] * 6)["success"]
    assert sign.limit < 0.25
    assert re.fullmatch(r"success 5.0% \(below \d+.\d%, half of its best or less\)", sign.seen)


@pytest.mark.parametrize(
    ("objective", "bound"),
    [
        ("ppo_clip", "; raise objective.clip_high (now 0.2); "),
        ("gspo", "; raise objective.clip_high (now 0.0004); "),
        ("sapo", "; "),
    ],
)
def test_a_remedy_names_the_bound_of_the_objective(objective, bound):
    settings = flatten(load_config("config", [f"objective={objective}"]))
    certain = next(check for check in CHECKS if check.metric == "entropy")
    remedy = Diagnostic(certain, (1,), 0.0, 0.02, settings).remedy
    assert remedy == f"Try: raise trainer.entropy_coef (now 0.01){bound}lower trainer.learning_rate (now 0.0005)."


def test_a_remedy_leaves_out_what_is_set_already():
    def remedies(*words):
        settings = flatten(load_config("config", words))
        return {check.metric: Diagnostic(check, (1,), 0.0, 0.5, settings).remedy for check in CHECKS}

    before = remedies("engine.constrain=none", "prompt=bare", "warmstart.source=none")
    after = remedies("engine.constrain=admissible", "prompt=instruct", "warmstart.source=random", "sampler=dynamic")
    assert before["valid_action_rate"] == (
        "Try: set engine.constrain=admissible (now none); set prompt=instruct; set warmstart.source=random (now none); "
        "raise rollout.max_new_tokens (now 32)."
    )
    assert after["valid_action_rate"] == "Try: raise rollout.max_new_tokens (now 32)."
    assert (
        before["zero_variance_groups"]
        .replace("; sample informative groups only, by sampler=dynamic", "")
        .replace("(now none)", "(now random)")
        == after["zero_variance_groups"]
    )
    assert "Try: ." not in after.values()


@pytest.mark.parametrize("algorithm", ["sb3_ppo", "sb3_dqn"])
def test_a_remedy_names_only_settings_that_the_learner_reads(algorithm):
    settings = flatten(load_config("config", [f"algo={algorithm}"]))
    for check in CHECKS:
        remedy = Diagnostic(check, (1,), 3.0, 1.0, settings).remedy
        assert not re.search(r"\b(trainer|warmstart)\.|sampler=", remedy)
        named = re.findall(r"algo\.\w+", remedy)
        assert all(setting in settings for setting in named)
        assert named or re.search(r"rollout\.|memory\.|other options of algo", remedy)
    if algorithm == "sb3_ppo":
        far = next(check for check in CHECKS if check.metric == "kl_behaviour")
        assert Diagnostic(far, (1,), 3.0, 1.0, settings).remedy == (
            "Try: lower algo.learning_rate (now 0.001) tenfold; set algo.n_epochs=1 (now 4)."
        )


def test_healthy_runs_are_not_warned(runs):
    folder, output = runs
    assert "Warning" not in output["healthy"]
    settings = flatten(read_config(folder / "healthy"))
    assert np.mean([line["success"] for line in read_metrics(folder / "healthy")][-3:]) > 0.5
    assert diagnose(read_metrics(folder / "healthy"), settings) == []


def test_the_terminal_warns_once_when_a_sign_begins(runs):
    folder, output = runs
    lines = output["diverging"].splitlines()
    [warning] = [line for line in lines if "Warning: KL" in line]
    assert "Try: lower trainer.learning_rate (now 1) tenfold" in warning
    first = next(line["iteration"] for line in read_metrics(folder / "diverging") if line.get("kl_behaviour", 0) > 0.2)
    assert lines[lines.index(warning) - 1].startswith(f"{first:4d}/8")
    assert f"hgpo-gym health {folder / 'diverging'}" in output["diverging"]
    assert output["silent"].count("Warning: zero-variance groups") == 1
    quiet = output["silent"].splitlines()
    assert quiet[[line.startswith("Warning") for line in quiet].index(True) - 1].startswith("   3/5")


def test_a_resumed_run_does_not_warn_again(runs, tmp_path):
    shown = io.StringIO()
    overrides = ["env.sections=4", "env.max_episode_steps=5"]
    train(tmp_path, *overrides, "trainer.iterations=3")
    train(
        tmp_path, *overrides, "trainer.iterations=5", "resume=auto", progress=Progress(Console(file=shown, width=500))
    )
    assert "Warning: zero-variance" not in shown.getvalue()
    assert "Warnings: 1." in shown.getvalue()


def test_the_report_begins_with_what_is_wrong(runs, tmp_path):
    folder, _ = runs
    for name, words in (
        ("diverging", "KL to behaviour"),
        ("silent", "zero-variance groups 100.0%"),
        ("healthy", "No sign that training went wrong"),
    ):
        page = write_report([folder / name], tmp_path / name)
        text = (tmp_path / name / "report.md").read_text()
        assert words in text.partition("### In short")[0]
        assert "<h3>The update</h3>" in page.read_text()
    table = (tmp_path / "healthy" / "tables" / "update.csv").read_text()
    for metric in ("loss", "KL to behaviour", "entropy", "clip fraction", "gradient norm", "mismatch", "learning rate"):
        assert f"\n{metric}," in table
    assert "\nresponse tokens," in table


def test_the_report_counts_the_runs_that_show_a_sign(runs, tmp_path):
    train(tmp_path / "runs" / "1", "env.sections=4", "env.max_episode_steps=5", "trainer.iterations=5", "seed=1")
    shutil.copytree(runs[0] / "silent", tmp_path / "runs" / "0")
    write_report([tmp_path / "runs"], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert (
        "2 of 2 runs (hgpo 2), first hgpo seed 0: zero-variance groups 100.0% (above 90.0%), "
        "after 3 iterations from 3 to 5" in text
    )


def test_the_command_says_what_is_wrong_with_a_run_in_any_state(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    folder, _ = runs
    status, output, _ = command(capsys, "health", folder / "diverging", folder / "healthy")
    assert status == 0
    broken, healthy = output.split("\n" + str(folder / "healthy"))
    assert "KL to behaviour" in broken.partition("Metrics")[0]
    assert "No sign that training went wrong" in healthy
    assert f"success {np.mean([line['success'] for line in read_metrics(folder / 'healthy')][:5]):.1%} first" in healthy
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "config.yaml").write_text((folder / "diverging" / "config.yaml").read_text())
    assert "nothing to judge by yet" in command(capsys, "health", killed)[1]
    lines = read_metrics(folder / "diverging")[:2]
    (killed / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"iteration": 3, "su')
    assert "2 of 8 iterations, not finished" in command(capsys, "health", killed)[1]
    (killed / "metrics.jsonl").write_text('{"iteration": 1, "success": "much"}\n')
    status, _, error = command(capsys, "health", killed)
    assert status == 2
    assert f"{killed / 'metrics.jsonl'} is damaged" in error
    status, _, error = command(capsys, "health", tmp_path / "nowhere")
    assert status == 2
    assert "No run in" in error
