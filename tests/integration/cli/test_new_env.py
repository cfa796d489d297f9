"""A custom package: hgpo-gym new-env writes it, pip installs it, the commands find it by its entry point."""

import tomllib

import pytest

from hgpo_gym.cli.main import main
from hgpo_gym.cli.new_env import write_package
from tests.support import ROOT
from tests.support.packages import install_by_hand, python

SMALL = [
    "model=tabular", "rollout.num_tasks=2", "rollout.group_size=4", "trainer.iterations=2",
    "trainer.mini_batch_size=16", "evaluation.decoding_seeds=1",
]  # fmt: skip

TAKEN = """
from hgpo_gym import register
register("hgpo_gym/Sokoban-v0", "twice:Sokoban", max_episode_steps=1, description="")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder that new-env wrote for `dark_lift`."""
    folder = tmp_path_factory.mktemp("packages") / "lift"
    main(["new-env", "dark_lift", "--to", str(folder)])
    return folder


@pytest.fixture(scope="module")
def site(package, tmp_path_factory):
    """A folder of installed packages: dark_lift as pip installs it, and two that are broken."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", folder]
    installed = python("-m", "pip", "install", *options, package)
    assert installed.returncode == 0, installed.stderr
    install_by_hand(folder, "raises", "import no_such_library", envs="raises = raises")
    install_by_hand(folder, "twice", TAKEN, envs="twice = twice")
    return folder


def test_what_is_written_is_clean_and_passes_its_own_test_at_once(package):
    assert python("-m", "ruff", "check", ".", cwd=package).returncode == 0
    assert python("-m", "ruff", "check", "--config", ROOT / "pyproject.toml", ".", cwd=package).returncode == 0
    assert python("-m", "ruff", "format", "--check", ".", cwd=package).returncode == 0
    metadata = tomllib.loads((package / "pyproject.toml").read_text())
    assert metadata["project"]["optional-dependencies"] == {"test": ["pytest>=8"]}
    assert "pip install --editable '.[test]'\n" in (package / "README.md").read_text()
    tested = python("-m", "pytest", "-p", "no:xdist", cwd=package)
    assert "3 passed" in tested.stdout, tested.stdout + tested.stderr
    assert not [path for path in package.rglob("*") if "my_game" in path.name]
    assert not [path for path in package.rglob("*.*") if path.is_file() and b"MyGame" in path.read_bytes()]


def test_an_installed_package_is_listed_and_broken_ones_are_named(site):
    listed = python("-m", "hgpo_gym", "envs", path=[site])
    assert listed.returncode == 0, listed.stderr
    assert "dark_lift/DarkLift-v0" in listed.stdout
    assert "env=dark_lift" in listed.stdout
    assert "hgpo_gym/Sokoban-v0" in listed.stdout
    assert (
        "raises 2.0 is left out of hgpo_gym.envs, because importing 'raises' failed with ModuleNotFoundError: "
        "No module named 'no_such_library'"
    ) in listed.stderr
    assert "twice 2.0 is left out of hgpo_gym.envs" in listed.stderr
    assert "The environment id 'hgpo_gym/Sokoban-v0' is taken" in listed.stderr


def test_a_folder_found_in_the_place_of_a_package_is_named(site, tmp_path):
    """Beside the folder of a package that is being worked on, Python finds that folder instead of the package."""
    (tmp_path / "their_game" / "their_game").mkdir(parents=True)
    install_by_hand(tmp_path, "their_game", "", envs="their_game = their_game")
    (tmp_path / "their_game.py").unlink()
    listed = python("-m", "hgpo_gym", "envs", path=[tmp_path])
    assert "hgpo_gym/Sokoban-v0" in listed.stdout
    assert "their_game 2.0 is left out of hgpo_gym.envs" in listed.stderr
    assert f"the folder {tmp_path / 'their_game'}, which is no package, is found in its place" in listed.stderr


LOOK_AT_SETTINGS = """
from hgpo_gym.config.compose import ConfigError, load_config
for name in ("dark_lift", "dark_lift/DarkLift-v0"):
    config = load_config("config", [f"env={name}", "env.floors=4"])
    print(config["env_name"], config["env"], repr(config["prompt"]["first"][:6]), sep="; ")
print(load_config("config", ["env=dark_lift", "prompt=instruct"])["prompt"]["response"])
print(load_config("config", ["env=sokoban", "prompt=dark_lift"])["prompt"]["first"][:6])
for wrong in ("env.flors=4", "env.floors=four"):
    try:
        load_config("config", ["env=dark_lift", wrong])
    except ConfigError as error:
        print(error)
"""


def test_its_settings_are_its_options_and_its_prompt(site):
    shown = python("-W", "ignore", "-c", LOOK_AT_SETTINGS, path=[site])
    lines = shown.stdout.splitlines()
    assert len(lines) == 6, shown.stderr
    options = "{'id': 'dark_lift/DarkLift-v0', 'max_episode_steps': 8, 'split': 'train', 'floors': 4}"
    assert lines[0] == lines[1] == f"dark_lift; {options}; '{{task}}'"
    assert lines[2:4] == ["<think></think><action>{action}</action>", "{task}"]
    assert lines[4].startswith("Unknown config key 'env.flors'. Did you mean 'env.floors'?")
    assert lines[5] == "env.floors=four: expected a whole number."


def test_it_trains(site, tmp_path):
    trained = python("-m", "hgpo_gym", "train", "env=dark_lift", *SMALL, "rollout.workers=1", path=[site], cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "runs" / "dark_lift-hgpo-seed0" / "summary.json").exists()


def test_it_is_registered_when_it_is_imported_before_hgpo_gym_and_refuses_a_split_that_it_does_not_have(site):
    make = "gymnasium.make('dark_lift/DarkLift-v0'"
    result = python(
        "-c", f"import dark_lift, gymnasium; print({make}).reset(seed=0)[0]); {make}, split='tran')", path=[site]
    )
    assert "You are on floor" in result.stdout, result.stderr
    assert "ValueError: Unknown split 'tran'. Did you mean 'train'?" in result.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My-Game", "The name 'My-Game' cannot be that of a package"),
        ("class", "The name 'class' cannot be that of a package"),
        ("_x", "cannot be that of a package"),
        ("json", "The name 'json' is taken by an installed package"),
        ("sokoban", "The name 'sokoban' is taken by the environment hgpo_gym/Sokoban-v0"),
    ],
)
def test_names_that_cannot_be_are_refused(name, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_package(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(SystemExit) as exit:
        main(["new-env", "dark_lift", "--to", str(tmp_path)])
    assert exit.value.code == 2
    assert "exists and is not an empty folder: choose another by --to FOLDER" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]
