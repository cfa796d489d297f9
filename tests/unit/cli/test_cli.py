"""The command: what it prints, and what it says to mistakes. Real processes' entry point, called in this one."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import warnings
from contextlib import suppress

import pytest
from rich.console import Console

import hgpo_gym
from hgpo_gym.cli.main import main
from hgpo_gym.cli.play import play_in_terminal
from hgpo_gym.cli.settings_help import COMMAND_SETTINGS, SET_BY_COMMAND
from hgpo_gym.config.compose import NAMED_ELSEWHERE, load_config, load_partly, load_run
from hgpo_gym.envs import TextEnv, Turn, register
from hgpo_gym.extras import install_command
from hgpo_gym.runs.directory import flatten
from tests.support import ROOT
from tests.support.commands import run
from tests.support.packages import python
from tests.support.small_runs import SETTINGS


def test_envs_lists_every_id_with_a_line(capsys):
    status, out, _ = run(capsys, "envs")
    assert status == 0
    assert "hgpo_gym/ALFWorld-v0" in out
    assert "hgpo_gym/SignpostMaze-v0" in out


def test_warnings_for_users_are_a_line_without_code_once(capsys):
    run(capsys, "envs")
    assert warnings.formatwarning("No games.", UserWarning, "env.py", 7) == "Warning: No games.\n"
    assert warnings.formatwarning("No games.", UserWarning, "env.py", 7) == ""
    assert "other.py:7: FutureWarning: Old." in warnings.formatwarning("Old.", FutureWarning, "other.py", 7)


PLANNED = ["team=planner_actor", "team.plans=[red,blue]"]


@pytest.mark.parametrize("command", ["train", "compare", "eval", "warmstart", "estimator-bias", "play"])
def test_help_names_the_choices_and_shows_an_example(command, capsys):
    status, out, _ = run(capsys, command, "--help")
    assert status == 0
    algorithms = re.search(r"^  algo=(.*?)^  \w+=", out, flags=re.MULTILINE | re.DOTALL)[1]
    assert {"gigpo", "grpo", "hgpo", "sb3_ppo"} <= set("".join(algorithms.split()).split("|"))
    assert f"hgpo-gym {command}" in out


@pytest.mark.parametrize("command", sorted(COMMAND_SETTINGS))
def test_help_has_the_settings_that_only_this_command_has(command, capsys):
    added = load_partly(command, []).keys() - load_partly("config", []).keys()
    assert added or command == "warmstart"
    settings = run(capsys, command, "--help")[1].partition("common settings")[2]
    for key in added:
        assert re.search(rf"^  {key}[.=]", settings, flags=re.MULTILINE), key
    for key in SET_BY_COMMAND.get(command, ()):
        assert not re.search(rf"^  {key}[.=]", settings, flags=re.MULTILINE), key


def test_help_keeps_to_the_width_of_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    _, out, _ = run(capsys, "compare", "--help")
    choices = out.partition("choices (group=choice):")[2].partition("examples:")[0]
    assert choices
    assert [line for line in choices.splitlines() if len(line) > 90] == []


@pytest.mark.parametrize("meant", sorted(set(NAMED_ELSEWHERE.values())))
def test_a_key_of_another_library_leads_to_the_key_here(meant):
    config = load_config("config", ["prompt=instruct"])
    assert meant in flatten(config) or meant in config


def test_the_version_is_shown(capsys):
    assert run(capsys, "--version") == (0, f"hgpo-gym {hgpo_gym.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "env=alfwrld"], "Unknown env 'alfwrld'. Did you mean 'alfworld'?"),
        (["train", "algo=hpgo"], "Unknown algo 'hpgo'. Did you mean 'hgpo'?"),
        (["train", "trainer.learnin_rate=1"], "Did you mean 'trainer.learning_rate'?"),
        (["train", "lr=1"], "Unknown config key 'lr'. Did you mean 'trainer.learning_rate'?"),
        (["train", "out=runs/one"], "Unknown config key 'out'. Did you mean 'run_dir'?"),
        (["eval", "run_dir=runs/one"], "run_dir=runs/one: eval trains nothing. The run to evaluate is run=..."),
        (["train", "env=my_game"], "One of your own is known once its package is installed."),
        (["train", "launcher=submitit"], "launcher=...: it is for hgpo-gym compare and league alone."),
        (["compare", "league=mazes"], "league=...: it is for hgpo-gym league alone."),
        (["train", "a=b=c"], "Cannot read 'a=b=c': write key=value, without spaces round the =, and lists in quotes"),
        (["train", "prompt.first={observation}"], """texts with signs in quotes of their own: 'prompt.first="{"""),
        (["eval", "policy=expert", "env=taxi"], "hgpo_gym/Taxi-v0 has no expert, which policy=expert,"),
        (["train", "model", "=", "tabular"], "Cannot read 'model': write key=value, without spaces round the ="),
        (["train", "--algo", "hgpo"], "There is no --algo. Settings are written key=value, without dashes"),
        (["train", "algo=grpo,hgpo"], "algo takes one. hgpo-gym compare 'algos=[grpo,hgpo]' trains with several."),
        (["compare", "algos=grpo,hgpo"], "in quotes for the shell: 'algos=[grpo,hgpo]'."),
        (["trian"], "Unknown command 'trian'. Did you mean 'train'? Valid: train, compare,"),
        (["train", "env=alfworld", "env.data=/no/such/place"], "ALFWorld games not found in /no/such/place"),
        (["train", "model.path=/no/such/model"], "No model in /no/such/model"),
        (["eval", "run=/no/such/run"], "run=/no/such/run is no run: expected /no/such/run/config.yaml."),
        (["warmstart"], "Set out=..."),
        (["warmstart", "model=tabular", "out=table"], "model.kind=tabular: this command saves a language model,"),
        (
            ["estimator-bias", "bias.estimators.hgpo_k2.estimator=hpgo"],
            "Unknown estimator 'hpgo'. Did you mean 'hgpo'?",
        ),
        (["estimator-bias", "+bias.estimators.hgpo_k2.alpha=2"], "Unknown option of hgpo 'alpha'"),
        (["estimator-bias", "+bias.estimators.mine={gamma: 1}"], "bias.estimators.mine needs estimator="),
        (
            ["estimator-bias", "bias.random_actions=[0.2,0.2]"],
            "random_actions=[0.2, 0.2]: a value stands there twice",
        ),
        (["eval", "model=tabular", "iteration=best"], "iteration=best: of which run? Name it by run="),
        (["estimator-bias", "rollout.temperature=0.3"], "rollout.temperature: estimator-bias does not read it."),
        (
            ["eval", "policy=expert", *PLANNED],
            "Or the role 'planner' does not act, and has no expert: choose team=solo.",
        ),
        (["estimator-bias", "memory.window=null"], "memory.window=None: exact values need"),
    ],
)
def test_mistakes_are_named_with_a_remedy_and_exit_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    status, _, err = run(capsys, *arguments)
    assert status == 2, err
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (["engine.constrain=admissible", "warmstart.source=none"], "lists none: set engine.constrain=none."),
        (["model=tabular"], "set it to admissible, or, where there are none, model=tiny or model=pretrained."),
        (["engine.constrain=admissible", "model=tabular"], "names none: set model=tiny or model=pretrained."),
    ],
)
def test_free_text_where_actions_are_chosen_is_a_mistake_with_a_remedy(settings, remedy, capsys, tmp_path):
    status, _, err = run(capsys, "train", "env=secret_word", *settings, f"run_dir={tmp_path / 'run'}")
    assert status == 2
    assert remedy in err


USES_OF_THE_CACHE = (
    ["eval", "policy=expert", "env=webshop", "env.split=generated", "evaluation.split=generated_test"],
    ["eval", "policy=expert", "env=alfworld", "env.split=generated", "evaluation.split=generated_test"],
    ["eval", "policy=openai", "openai.model=x", "prompt=instruct", "engine.constrain=none", "run=null"],
    ["train", "model=features", "warmstart.source=expert"],
)


def test_a_cache_that_cannot_be_written_is_named_with_what_moves_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    places = ("/proc/nowhere", *[f"{tmp_path}/file"] * 3)
    for place, command in zip(places, USES_OF_THE_CACHE, strict=True):
        monkeypatch.setenv("HGPO_GYM_CACHE", place)
        status, _, err = run(capsys, *command)
        assert (status, err.count("\n")) == (2, 1), err
        assert err.startswith(f"hgpo-gym: Cannot write {place}/"), err
        assert err.endswith("Set HGPO_GYM_CACHE to a folder that can be written.\n"), err


def test_without_a_home_directory_the_cache_has_to_be_named(capsys, tmp_path, monkeypatch):
    def unknown(uid):
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "HGPO_GYM_CACHE", "ALFWORLD_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)  # as of a number that a container is run by
    monkeypatch.chdir(tmp_path)
    for command, remedy in (
        (USES_OF_THE_CACHE[0], "There is no home directory.* Set HGPO_GYM_CACHE to a folder that can be written"),
        (["data", "alfworld", "--check"], "~/.cache/alfworld: there is no home directory.* Set .*ALFWORLD_DATA,"),
    ):
        status, _, err = run(capsys, *command)
        assert (status, err.count("\n")) == (2, 1), err
        assert re.search(f"^hgpo-gym: {remedy}", err), err
    assert not list(tmp_path.iterdir())


def test_an_output_that_has_no_code_for_a_character_shows_it_as_python_writes_it(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    main(["train", "--show-config", 'env_name="wörter ☃"'])
    assert b"env_name: w\\xf6rter \\u2603\n" in sys.stdout.buffer.getvalue()
    with pytest.raises(SystemExit):
        main(["health", "keiner ☃"])
    sys.stderr.flush()
    assert b"keiner \\u2603" in sys.stderr.buffer.getvalue()


def test_without_a_command_the_help_is_shown(capsys):
    assert run(capsys) == run(capsys, "--help")
    assert run(capsys)[0] == 0


def test_settings_may_follow_an_option(capsys):
    assert "seed: 4" in run(capsys, "train", "algo=gigpo", "--show-config", "seed=4")[1]
    status, _, err = run(capsys, "export", "runs/one", "--too", "models/one")
    assert status == 2
    assert "--to" in err


def test_a_run_in_place_of_a_setting_is_recognised(capsys, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.yaml").write_text("seed: 0\n")
    status, _, err = run(capsys, "eval", tmp_path / "one")
    assert status == 2
    assert f"{tmp_path / 'one'} is a run: write run={tmp_path / 'one'}." in err
    for command in (["health"], ["inspect"], ["export", "--to", tmp_path / "model"]):
        status, _, err = run(capsys, *command, tmp_path)
        assert status == 2
        assert f"No run in {tmp_path}: expected {tmp_path / 'config.yaml'}. Runs are in folders of it" in err


@pytest.mark.parametrize("command", [["health"], ["inspect"], ["export", "--to", "models/one"], ["report"]])
def test_a_setting_in_place_of_a_directory_is_recognised(command, capsys, tmp_path):
    status, _, err = run(capsys, *command, f"run={tmp_path}")
    assert status == 2
    assert f"write the directory alone, {tmp_path} instead of run={tmp_path}" in err
    odd = tmp_path / "run=a"
    odd.mkdir()
    assert "instead of" not in run(capsys, *command, odd)[2]  # a directory that is really called so


@pytest.mark.parametrize(("command", "buffered"), [("envs", True), ("envs", False), ("train --show-config", True)])
def test_a_reader_that_has_had_enough_is_no_error(command, buffered):
    ours, theirs = os.pipe()
    os.close(ours)
    left = subprocess.run(
        [sys.executable, *([] if buffered else ["-u"]), "-m", "hgpo_gym", *command.split()],
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        check=False,
    )
    os.close(theirs)
    assert (left.returncode, left.stderr) == (0, b"")


@pytest.mark.slow
def test_a_terminal_shows_that_something_loads(tmp_path):
    ours, theirs = pty.openpty()
    refused = ["train", "run_dir=here", "rollout.group_size=0"]
    loading = subprocess.Popen(
        [sys.executable, "-m", "hgpo_gym", *refused],
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    os.close(theirs)
    output = b""
    with suppress(OSError):  # what a terminal says whose last writer has left
        while part := os.read(ours, 1000):
            output += part
    os.close(ours)
    assert loading.wait() == 2
    assert output.index(b"Loading") < output.index(b"must be above 0")
    assert "Loading" not in python("-m", "hgpo_gym", *refused, cwd=tmp_path).stderr


@pytest.mark.parametrize(("policy", "least", "most"), [("expert", 1.0, 1.0), ("random", 0.0, 0.4)])
def test_eval_without_a_model(policy, least, most, capsys, tmp_path):
    out = tmp_path / "result.json"
    status, printed, _ = run(capsys, "eval", f"policy={policy}", f"out={out}", "evaluation.decoding_seeds=2")
    assert status == 0
    result = json.loads(out.read_text())
    assert json.loads(printed[printed.index("{") :]) == result
    assert result["tasks"] == 9
    assert result["episodes"] == 18
    assert least <= result["success"] <= most


def test_eval_says_why_a_model_does_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path))
    one = ["env.sections=1", "env.max_episode_steps=3", "evaluation.decoding_seeds=1"]
    small = ["warmstart.source=none", "engine.constrain=none", "tiny.hidden_size=16", "rollout.max_new_tokens=4"]
    status, out, _ = run(capsys, "eval", *one, *small)
    assert status == 0
    assert "success 0.0% of 1 episode\nvalid actions 0.0% (below 50.0%). Likely cause: the model does not know" in out
    assert "Try: set engine.constrain=admissible (now none); set prompt=instruct" in out
    assert "Likely cause" not in run(capsys, "eval", "policy=random", *one)[1]


def test_estimator_bias_writes_what_it_prints_and_names_all_in_full(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    small = ["bias.episodes=64", "bias.tasks=2", "bias.group_sizes=[4,32]", "bias.improvements=[0,3]"]
    status, out, err = run(
        capsys, "estimator-bias", *small, "env.sections=2", f"out={tmp_path}", "bias.norm=mean_std_norm"
    )
    assert status == 0, err
    assert "3 improvements, success" in out
    with (tmp_path / "findings.csv").open() as file:
        lines = list(csv.DictReader(file))
    overall = [line for line in lines if line["steps"] == "all"]
    labels = list(load_config("estimator-bias", [])["bias"]["estimators"])
    assert len(overall) == 2 * 2 * (len(labels) + 1)
    for label in (*labels, "true_baseline"):
        assert label in out
    shown = next(line for line in overall if (line["estimator"], line["group_size"]) == ("gigpo", "4"))
    assert f"{float(shown['cosine']):.3f}" in out
    levels = (tmp_path / "context_bias.csv").read_text().splitlines()
    assert levels[0] == "stage,level,bias2"
    assert len(levels) == 1 + 2 * 5
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")


def test_a_person_can_play_and_sees_which_contexts_recur(monkeypatch):
    lines = iter(["1", "walk on", "fly away", "4", "open red door", "/quit"])
    console = Console(file=io.StringIO(), width=100)
    monkeypatch.setattr(console, "input", lambda *_, **__: next(lines))
    play_in_terminal(load_run([]), "red-red-blue", console)
    text = console.file.getvalue()
    assert "Task: Find the way through the castle to the garden." in text
    assert "1. walk on" in text
    assert "not a valid action here; /help" in text
    assert "what is seen (level 0), also what was seen before (level 1)" in " ".join(text.split())
    assert "same context at" in text
    assert "1.2" in text


def test_what_begins_with_a_slash_costs_no_step(monkeypatch):
    lines = iter(["/help", "/hlep", "/quit"])
    console = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(console, "input", lambda *_, **__: next(lines))
    play_in_terminal(load_run([]), "red-red-blue", console)
    text = console.file.getvalue()
    assert text.count("/reset begins a new episode") == 3
    assert "There is no /hlep." in text
    assert text.count("step 1.1") == 1
    assert "1.2" not in text
    assert "not a valid action here" not in text


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from hgpo_gym.cli.main import main
main({arguments})
"""
OF_TRAIN = ["torch", "transformers", "accelerate", "jinja2", "matplotlib", "safetensors", "tokenizers"]


def test_playing_needs_the_extra_play_alone():
    """Its message says so where that is missing."""
    result = python("-c", WITHOUT.format(missing=OF_TRAIN, arguments=["play", "env=sokoban"]))
    assert "Push every box onto a goal" in result.stdout, result.stderr
    for command, extra in (("play", "play"), ("train", "train")):
        refused = python("-c", WITHOUT.format(missing=["hydra", *OF_TRAIN], arguments=[command]))
        assert install_command(extra) in refused.stderr
        assert refused.returncode == 2


class Bracketed(TextEnv):
    """Its texts look like the markup that a console may take for colours."""

    task_ids = ("a [bold] task",)

    def begin_episode(self, task_id):
        return Turn("You see [red]tea[/red].", task="Buy tea [organic] [/].", admissible_actions=("buy[tea]",))

    def take_action(self, action):
        return Turn("Bought [b].", terminated=True, won=True)


register("hgpo_gym_tests/Bracketed-v0", Bracketed, max_episode_steps=2, description="for tests")


def test_play_shows_brackets_as_they_are(monkeypatch):
    lines = iter(["1", "/quit"])
    console = Console(file=io.StringIO(), width=100)
    monkeypatch.setattr(console, "input", lambda *_, **__: next(lines))
    settings = load_run([]).changed(env={"id": "hgpo_gym_tests/Bracketed-v0"})
    play_in_terminal(settings, console=console)
    text = console.file.getvalue()
    for shown in ("a [bold] task", "Buy tea [organic] [/].", "[red]tea[/red]", "1. buy[tea]", "Bought [b]."):
        assert shown in text


def test_play_ends_with_the_input(monkeypatch):
    console = Console(file=io.StringIO())

    def ended(*_, **__):
        raise EOFError

    monkeypatch.setattr(console, "input", ended)
    play_in_terminal(load_run([]), console=console)
    assert "signpost" in console.file.getvalue()


NOISY = """
import logging, warnings
from hgpo_gym.trainers.libraries import quiet_libraries
quiet_libraries(1)
for module in ("transformers.modeling_utils", "torch.optim", "my_methods", "torchlike"):
    warnings.warn_explicit(f"{module} says old", FutureWarning, "file.py", 1, module=module)
import transformers
transformers.utils.logging.get_logger("transformers.models.qwen2").warning("a kernel could be installed")
transformers.utils.logging.get_logger("transformers.models.qwen2").error("this is broken")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["my_methods says old", "torchlike says old", "this is broken"]),
        (
            {"PYTHONWARNINGS": "always", "TRANSFORMERS_VERBOSITY": "warning"},
            [
                "transformers.modeling_utils says old", "torch.optim says old", "my_methods says old",
                "torchlike says old", "a kernel could be installed", "this is broken",
            ],
        ),
    ],
)  # fmt: skip
def test_what_frameworks_tell_programmers_is_kept_out_of_the_terminal_and_nothing_else(environment, expected):
    done = subprocess.run(
        [sys.executable, "-c", NOISY], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    texts = (" says old", "a kernel could be installed", "this is broken")
    heard = [line for line in done.stderr.splitlines() if any(text in line for text in texts)]
    assert len(heard) == len(expected)
    assert all(text in line for text, line in zip(expected, heard, strict=True))


WAITS_FOR = """
import sys
from hgpo_gym.cli.one_run import train_one_of_many
from hgpo_gym.config.compose import load_run

for model in ("tabular", "features"):
    settings = [*sys.argv[2:], f"model={model}", f"run_dir={sys.argv[1]}/{model}"]
    train_one_of_many(load_run(settings).resolved)
slow = {"transformers", "accelerate", "matplotlib", "torch._dynamo", "torch.distributed.checkpoint"}
print("imported:", sorted(slow.intersection(sys.modules)))
"""


@pytest.mark.slow
def test_a_run_waits_for_nothing_that_only_others_need(tmp_path):
    """The imports of language models, several processes and reports take longer than a small run."""
    command = [sys.executable, "-c", WAITS_FOR, str(tmp_path), *SETTINGS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported: []"
