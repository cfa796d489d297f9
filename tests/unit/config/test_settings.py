"""The door: settings are parsed once, all that cannot be is named at once, and a run's config.yaml is data."""

import copy
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from hgpo_gym.cli.main import main
from hgpo_gym.config import choices
from hgpo_gym.config.compose import ConfigError, load_config, load_run
from hgpo_gym.memory.keys import KEY_FUNCTIONS
from hgpo_gym.policies.endpoint_settings import EndpointSettings
from hgpo_gym.registry import Choice
from hgpo_gym.runs.directory import flatten, read_config
from hgpo_gym.section import parse_section
from hgpo_gym.trainers.models.language_model import LanguageModel
from hgpo_gym.trainers.models.table import TableModel
from hgpo_gym.trainers.settings import RunSettings
from tests.support.small_runs import SETTINGS, train

REMOVED = object()


@pytest.fixture(scope="module")
def defaults():
    return load_config("config", [])


def changed(config, changes):
    """A copy with other values, by their keys with dots."""
    config = copy.deepcopy(config)
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = config
        for part in sections:
            section = section[part]
        if value is REMOVED:
            del section[name]
        else:
            section[name] = value
    return config


def refusal(config, changes):
    """The lines of messages about these changes."""
    with pytest.raises(ValueError, match=r".") as refused:
        RunSettings.parse(changed(config, changes))
    return str(refused.value).splitlines()


def test_the_settings_are_the_configuration_in_types():
    run = load_run(["algo=gigpo", "algo.gamma=0.5", "model=tabular", "memory.window=null", "env.sections=2", "seed=3"])
    assert run.algo.name == "gigpo"
    assert run.algo.options["gamma"] == 0.5
    assert run.run_dir == Path("runs/signpost_maze-gigpo-seed3")
    assert run.env.id == "hgpo_gym/SignpostMaze-v0"
    assert run.env.options["sections"] == 2
    assert run.memory.window is None
    assert isinstance(run.model, TableModel)
    assert run.model.capacity == 16384
    assert run.team == Choice("solo", {"role": ""})
    assert RunSettings.parse(run.resolved) == run
    assert isinstance(load_run([]).model, LanguageModel)


def test_a_composed_config_follows_files_and_registries_and_is_a_copy(tmp_path, monkeypatch):
    """Hydra composes the same words once, until something that they are composed of has changed."""
    folder = tmp_path / "configs"
    shutil.copytree(choices.FOLDER, folder)
    monkeypatch.setattr(choices, "FOLDER", folder)
    words = ["algo=vineppo", "model=tabular"]
    first = load_config("config", words)
    first["algo"]["gamma"] = "spoiled"
    assert load_config("config", words)["algo"]["gamma"] == 1.0
    file = folder / "algo" / "vineppo.yaml"
    file.write_text(file.read_text() + "  one_more: 3\n")
    assert load_config("config", words)["algo"]["one_more"] == 3
    assert load_config("config", [*words, "algo.one_more=4"])["algo"]["one_more"] == 4

    registered = choices.REGISTRIES["algo"]._all
    for default in (1, 2):
        monkeypatch.setitem(registered, "tests_estimator", lambda batch, depth=default: np.zeros(len(batch)))
        assert load_config("config", ["algo=tests_estimator"])["algo"] == {"name": "tests_estimator", "depth": default}


@pytest.mark.parametrize(
    "overrides",
    [
        [
            "algo=gigpo", "trainer.learning_rate=1e-3", "algo.gamma=0.5", "run_dir='a ${env_name}: {x}'",
            "algo.gamma=0.25",
        ],
        ["sampler=stages", "sampler.stages=[[6,2],[null,null]]", "rollout.train_tasks=null", "loggers=[wandb]"],
        ["env.sections=1", "+env.colour=red", "++env.plates=true", "~rollout.workers"],
    ],
)  # fmt: skip
def test_what_is_composed_is_what_hydra_composes(overrides):
    composed = load_config("config", overrides)
    made = choices.made_settings(composed)
    of_env = [f"++env.{key}={json.dumps(value)}" for key, value in made.pop(("env", "signpost_maze")).items()]
    for (group, name), settings in made.items():
        ConfigStore.instance().store(name, settings, group)
    with initialize_config_dir(str(choices.FOLDER), version_base="1.3"):
        expected = OmegaConf.to_container(compose("config", [*of_env, *overrides]), resolve=True)
    assert composed == expected


@pytest.mark.promise("Wrong settings are all named at once, before anything is written.")
def test_all_wrong_values_are_named_at_once(defaults):
    changes = {
        "seed": -1, "rollout.group_size": 0, "rollout.temperature": 0.0, "trainer.optimizer": "adam",
        "model.lora.rank": 0, "model.device": 3, "engine.kind": "vlm", "memory.key": "obs", "prompt.first": None,
        "warmstart.random_actions": 1.0,
    }  # fmt: skip
    assert refusal(defaults, changes) == [
        "seed=-1: must be at least 0.",
        f"Unknown memory.key 'obs'. Did you mean 'notes'? Valid: {', '.join(KEY_FUNCTIONS)}.",
        "rollout.group_size=0: must be above 0.",
        "rollout.temperature=0.0: must be above 0.",
        "prompt.first=None: expected text.",
        "model.device=3: expected text.",
        "model.lora.rank=0: must be above 0.",
        "Unknown engine.kind 'vlm'. Did you mean 'vllm'? Valid: transformers, vllm.",
        "Unknown trainer.optimizer 'adam'. Did you mean 'adamw'? Valid: adamw, adamw_8bit, muon.",
        "warmstart.random_actions=1.0: must be below 1.",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer.learning_rate": "1e-3"}, "trainer.learning_rate='1e-3': expected a number."),
        ({"trainer.max_grad_norm": float("nan")}, "trainer.max_grad_norm=nan: expected a finite number."),
        ({"trainer.gradient_checkpointing": 1}, "trainer.gradient_checkpointing=1: expected true or false."),
        ({"rollout.group_size": None}, "rollout.group_size=None: expected a whole number."),
        ({"rollout.group_size": 2.5}, "rollout.group_size=2.5: expected a whole number."),
        ({"rollout.group_size": True}, "rollout.group_size=True: expected a whole number."),
        ({"evaluation.top_p": 1.5}, "evaluation.top_p=1.5: must be at most 1."),
        ({"evaluation.split": 5}, "evaluation.split=5: expected text or a list, [a, b]."),
        ({"evaluation.split": ["test", 5]}, "evaluation.split[1]=5: expected text."),
        ({"loggers": "wandb"}, "loggers='wandb': expected a list, [a, b]."),
        ({"rollout.record": ["entropy", 3]}, "rollout.record[1]=3: expected text."),
        ({"model.lora": "x"}, "model.lora='x': expected a mapping, {a: 1}."),
        ({"model.lora.target_modules": ["q", 1]}, "model.lora.target_modules[1]=1: expected text."),
        ({"model.quantization": "nf5"}, "Unknown model.quantization 'nf5'. Did you mean 'nf4'? Valid: nf4."),
        ({"model.kind": "tabulr"}, "Unknown model.kind 'tabulr'. Did you mean 'tabular'?"),
        ({"memory": 7}, "memory=7: expected a mapping, {a: 1}."),
        ({"algo": 3}, "algo=3: expected a name, with options beside it."),
        ({"team.name": REMOVED}, "team: expected a name, with options beside it."),
        ({"model.kind": REMOVED}, "model: expected a kind, with options beside it."),
        ({"env.id": REMOVED}, "env: expected the id of an environment, with its options beside it."),
        ({"run_dir": 3}, "run_dir=3: expected a folder."),
        ({"trainer.kl_coef": REMOVED}, "trainer.kl_coef is not set."),
        ({"checkpoint": REMOVED}, "checkpoint is not set."),
        ({"prompt.response": REMOVED}, "prompt.response is not set."),
        ({"prompt.first": "{tsk}"}, "Unknown placeholder in prompt.first 'tsk'. Did you mean 'task'?"),
        ({"trainer.loss_constant": 8.0}, "trainer.loss_constant=8.0: trainer.loss_aggregation=token_mean does not"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(changes, message, defaults):
    (line,) = refusal(defaults, changes)
    assert line.startswith(message)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("trainer.kl_cof", "trainer.kl_coef"),
        ("model.sed", "model.seed"),
        ("model.lora.rnk", "model.lora.rank"),
        ("prompt.fist", "prompt.first"),
        ("checkpoint.keep_bst", "checkpoint.keep_best"),
    ],
)
def test_an_unknown_setting_gets_the_nearest_one(name, nearest, defaults):
    (line,) = refusal(defaults, {name: 1})
    assert line.startswith(f"Unknown setting {name!r}. Did you mean {nearest!r}? Valid: ")


def test_mistakes_in_a_section_of_a_command_carry_its_name_and_no_secret():
    values = load_config("eval", ["openai.model=tiny"])["openai"]
    assert parse_section(EndpointSettings, values, "openai.").model == "tiny"
    with pytest.raises(ValueError, match=r"^openai\.retries=-1: must be at least 0\.\nopenai\.timeout=0\.0: must be "):
        parse_section(EndpointSettings, {**values, "timeout": 0.0, "retries": -1}, "openai.")
    with pytest.raises(ValueError, match=r"openai\.base_url holds a password") as refused:
        parse_section(EndpointSettings, {**values, "base_url": "http://me:secret@host/v1"}, "openai.")
    assert "secret" not in str(refused.value)


def test_settings_change_as_a_whole_and_are_checked_again():
    run = load_run(["model=tabular"])
    other = run.changed(seed=5, run_dir="elsewhere")
    assert (other.seed, other.run_dir) == (5, Path("elsewhere"))
    assert other.resolved == {**run.resolved, "seed": 5, "run_dir": "elsewhere"}
    assert run.seed == 0
    with pytest.raises(ValueError, match=r"seed=-5: must be at least 0\."):
        run.changed(seed=-5)
    with pytest.raises(ValueError, match="frozen"):
        run.seed = 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "plugins: there is neither a file mine.py nor a module mine.py. Name a Python file by its path."),
        ("1 / 0", "plugins: importing mine.py failed with ZeroDivisionError: division by zero"),
        ("import no_such_library", "plugins: importing mine.py failed: No module named 'no_such_library'"),
    ],
)
def test_a_missing_or_broken_config_file_is_refused(code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of another test
    if code is not None:
        (tmp_path / "mine.py").write_text(code)
    with pytest.raises(SystemExit) as ended:
        main(["train", "plugins=[mine.py]", *SETTINGS])
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert message in output
    assert "Traceback" not in output
    assert not (tmp_path / "runs").exists()


def test_an_option_that_is_a_mapping_is_set_whole_or_by_its_keys():
    def base_options(*overrides):
        return load_config("config", ["algo=salt", *overrides])["algo"]["base_options"]

    assert base_options() == {}
    by_keys = base_options("algo.base_options.gamma=0.5", "algo.base_options.norm=mean_norm")
    assert (
        by_keys
        == base_options("algo.base_options={gamma: 0.5, norm: mean_norm}")
        == {"gamma": 0.5, "norm": "mean_norm"}
    )
    with pytest.raises(ConfigError, match=r"Unknown config key 'algo\.base_option\.gamma'"):
        base_options("algo.base_option.gamma=0.5")


@pytest.mark.parametrize(
    ("command", "override", "message"),
    [
        ("compare", "out=5", "out=5: expected a path"),
        ("compare", "out=null", "out=None: expected a path"),
        ("warmstart", "out=null", "out=None: expected a path"),
        ("eval", "transcripts=[a]", r"transcripts=\['a'\]: expected a path"),
        ("eval", "run=5", "run=5: expected a path"),
        ("config", "tiny=5", r"tiny=5: expected a mapping, tiny=\{name: value\}"),
        ("config", "loggers={a: 1}", r"loggers=\{'a': 1\}: expected a list, loggers=\[\.\.\.\]"),
    ],
)
def test_values_of_another_kind_are_named(command, override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(command, [override])


def test_plugins_are_a_list(capsys):
    with pytest.raises(SystemExit):
        main(["train", "plugins=mine.py"])
    assert (
        "plugins=mine.py: expected a list of Python files or modules, plugins=[my_file.py]." in capsys.readouterr().err
    )


SECRET = "what nobody should read"
NOT_LOOKED_UP = "${oc.env:HGPO_GYM_TESTS_SECRET}"


@pytest.fixture
def run_with_an_interpolation(tmp_path, monkeypatch):
    """The directory of a run whose config.yaml asks for a variable of whoever looks at it."""
    monkeypatch.setenv("HGPO_GYM_TESTS_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    train(tmp_path / "run", "trainer.iterations=1")
    path = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["env_name"] = config["memory"]["key"] = NOT_LOOKED_UP
    config["algo"]["norm"] = config["model"]["kind"] = NOT_LOOKED_UP
    path.write_text(yaml.safe_dump(config))
    return tmp_path / "run"


def said_to(capsys, *arguments):
    """Return the output and the errors of a command, with any exit status."""
    capsys.readouterr()
    with suppress(SystemExit):
        main(arguments)
    return "".join(capsys.readouterr())


def test_the_configuration_of_a_run_is_read_as_data(run_with_an_interpolation, capsys, tmp_path):
    """Runs are sent around: what stands in their config.yaml is shown, and never looked up or run."""
    run = run_with_an_interpolation
    assert read_config(run)["env_name"] == NOT_LOOKED_UP
    said_to(capsys, "report", str(run), "--out", str(tmp_path / "report"))
    report = (tmp_path / "report" / "report.md").read_text()
    assert NOT_LOOKED_UP in report
    inspected = said_to(capsys, "inspect", str(run), "--task", "0", "--html", str(tmp_path / "group.html"))
    evaluated = said_to(capsys, "eval", *SETTINGS, f"run={run}")
    assert f"run={run} has model.kind={NOT_LOOKED_UP}, not tabular: leave out model=" in evaluated
    with_its_own_settings = said_to(capsys, "eval", f"run={run}")
    assert f"Unknown memory.key {NOT_LOOKED_UP!r}" in with_its_own_settings
    resumed = said_to(capsys, "train", *SETTINGS, f"run_dir={run}", "trainer.iterations=1", "resume=auto")
    assert f"env_name: {NOT_LOOKED_UP!r} in the run, 'signpost_maze' now" in resumed
    exported = said_to(capsys, "export", str(run), "--to", str(tmp_path / "model"))
    for text in (report, inspected, evaluated, with_its_own_settings, resumed, exported):
        assert SECRET not in text
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_configuration_that_runs_code_is_refused(run_with_an_interpolation, capsys, tmp_path):
    (run_with_an_interpolation / "config.yaml").write_text(
        f"env_name: !!python/object/apply:os.mkdir [{json.dumps(str(tmp_path / 'ran'))}]\n"
    )
    assert "config.yaml is damaged" in said_to(capsys, "report", str(run_with_an_interpolation))
    assert not (tmp_path / "ran").exists()


def test_every_option_of_every_choice_is_explained_and_shown_with_its_explanation(capsys):
    for group, registry in choices.REGISTRIES.items():
        for name in registry:
            if not registry[name].__module__.startswith("hgpo_gym."):
                continue  # of an installed package
            options = choices.choice_settings(registry, name)
            del options[choices.name_key(group)]
            unexplained = (registry.options(name) | flatten(options)).keys() - choices.choice_meanings(registry, name)
            assert not unexplained, f"{group}={name}: the docstring does not explain {', '.join(sorted(unexplained))}"
            assert registry.summary(name), f"{group}={name}"
    main(["train", "algo=gigpo", "objective=capo", "shaping=overlong", "shaping.buffer=3", "--show-config"])
    shown = capsys.readouterr().out
    assert "  # discount of the step returns G_t.\n  gamma: 0.95\n" in shown
    assert "  # of the step that is judged.\n  learning_rate: 0.0005\n" in shown
    assert yaml.safe_load(shown)["shaping"] == {"name": "overlong", "longest": 32, "buffer": 3, "factor": 1.0}


@pytest.mark.parametrize("env", ["signpost_maze", "alfworld", "secret_word", "sokoban"])
def test_a_pretrained_model_comes_with_what_it_needs(env):
    config = load_config("config", [f"env={env}", "model=pretrained"])
    published = load_config("config", ["trainer=pretrained"])["trainer"]
    assert config["trainer"] == published
    assert config["prompt"] == load_config("config", ["prompt=instruct"])["prompt"]
    assert config["engine"]["constrain"] == "none"
    assert config["rollout"]["max_new_tokens"] == 512
    assert RunSettings.parse(config).warmstart.source == "none"


def test_what_comes_with_a_pretrained_model_can_be_set():
    overrides = ["prompt=bare", "trainer=default", "engine.constrain=admissible", "rollout.max_new_tokens=8"]
    plain, pretrained = (load_config("config", [*overrides, *more]) for more in ([], ["model=pretrained"]))
    for section in ("prompt", "trainer", "rollout"):
        assert pretrained[section] == plain[section]
    assert pretrained["engine"] == {**plain["engine"], "max_batch_tokens": 16384}


@pytest.mark.parametrize(("env", "rate", "entropy"), [("sokoban", 2e-4, 0.0), ("signpost_maze", 5e-4, 0.01)])
def test_a_small_model_learns_by_what_its_environment_says(env, rate, entropy):
    trainer = load_config("config", [f"env={env}"])["trainer"]
    assert (trainer["learning_rate"], trainer["entropy_coef"]) == (rate, entropy)
