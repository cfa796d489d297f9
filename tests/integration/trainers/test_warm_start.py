"""The episodes of a warm start, and the invalidation of its cache."""

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from hgpo_gym.config.compose import load_run
from hgpo_gym.envs import TextEnv, Turn, register
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.files import cache_dir
from hgpo_gym.plugins import load_plugins
from hgpo_gym.policies import Request, Sampling, features, language_model, trie
from hgpo_gym.policies.huggingface import checkpoint_activations
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts import plans
from hgpo_gym.runs.directory import read_config
from hgpo_gym.trainers.models import initial_weights as initial_weights_module
from hgpo_gym.trainers.models.initial_weights import initial_weights
from hgpo_gym.trainers.warm_start.episodes import episodes_to_imitate
from tests.support.commands import run
from tests.support.envs import GAME
from tests.support.small_runs import train

TINY = ["env.sections=1", "warmstart.episodes=4", "warmstart.epochs=1", "tiny.hidden_size=32", "tiny.heads=2"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "source"),
    [
        ([], "random"),
        (["env=sokoban"], "expert"),
        (["env=sokoban", "warmstart.source=none"], "none"),
        (["env=sokoban", "warmstart.new_model=random"], "random"),
        (["env=sokoban", "model.path=models/mine"], "none"),
        (["env=sokoban", "model.path=models/mine", "warmstart.source=expert"], "expert"),
        (["env=secret_word", "model=pretrained"], "none"),
        (["env=sokoban", "model=tabular"], "none"),
    ],
)
def test_models_made_here_imitate_and_given_ones_are_used_as_they_are(overrides, source):
    settings = load_run(overrides)
    assert settings.warmstart.source == source
    assert settings.resolved["warmstart"]["source"] == source


def test_an_exported_model_is_trained_and_evaluated_as_it_is(capsys, tmp_path):
    short = [
        *TINY, "trainer.iterations=0", "evaluation.decoding_seeds=2", "rollout.num_tasks=2", "rollout.group_size=2",
    ]  # fmt: skip
    before = train(tmp_path / "first", base=short)["success_before"]
    assert read_config(tmp_path / "first")["warmstart"]["source"] == "random"
    assert run(capsys, "export", "first", "--to", "exported")[0] == 0
    saved = set((tmp_path / "cache").rglob("*"))
    assert train(tmp_path / "second", "model.path=exported", base=short)["success_before"] == before
    status, out, err = run(capsys, "eval", *short, "model.path=exported")
    assert status == 0, err
    assert f'"success": {before}' in out
    assert "Warm start" not in out
    assert set((tmp_path / "cache").rglob("*")) == saved
    settings = load_run([*short, "model.path=exported"])
    assert initial_weights(settings, settings.model, Progress()) == "exported"


def test_the_command_warmstart_lets_a_given_model_imitate(capsys):
    assert run(capsys, "warmstart", *TINY, "out=first")[0] == 0
    status, _, err = run(capsys, "warmstart", *TINY, "out=first")
    assert (status, "out=first is not empty" in err) == (2, True), "what is there would be read as the model's"
    status, out, _ = run(capsys, "warmstart", *TINY, "model.path=first", "out=second")
    assert status == 0
    assert "Warm start: " in out
    assert "hgpo-gym train model.path=second\n" in out


def test_a_file_in_place_of_a_model_is_an_error(capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    status, out, err = run(capsys, "warmstart", *TINY, f"out={tmp_path / 'file'}")
    assert (status, out) == (2, "")
    assert "is a file: name a folder for the model." in err
    assert (tmp_path / "file").read_text() == "mine"


def test_imitated_choices_are_those_among_admissible_responses(tmp_path):
    """A model that has learned nothing else, not even the form of responses, still wins under the constraint."""
    settings = [*TINY, "warmstart.source=expert", "warmstart.episodes=60", "warmstart.epochs=8", "trainer.iterations=0"]
    loose = ["evaluation.split=train", "evaluation.decoding_seeds=1", "rollout.max_new_tokens=8"]
    won = train(tmp_path / "choices", *loose, "warmstart.loss=choices", base=settings)["success_before"]
    assert won > 0.9
    run = load_run([*settings, "warmstart.loss=choices"])
    policy = run.model.load(run, Path(initial_weights(run, run.model, Progress())))
    policy.constrain = "none"
    free = policy.generate([Request("a hall\n>", ("left", "right"), seed=(n,)) for n in range(20)], Sampling())
    assert not {"left", "right"} & {response.text for response in free}


@pytest.mark.parametrize("kind", ["tiny", "features"])
def test_imitation_computes_as_an_update_does(kind, monkeypatch):
    """In the precision that is set, which rounds; checkpoints of activations change nothing."""
    checkpointed = []
    monkeypatch.setattr(
        initial_weights_module,
        "checkpoint_activations",
        lambda model: checkpointed.append(checkpoint_activations(model)),
    )

    def weights(*overrides):
        settings = load_run([*TINY, f"model={kind}", "warmstart.source=expert", *overrides])
        return torch.cat(
            [one.detach().flatten() for one in settings.model.initial(settings, Progress()).model.parameters()]
        )

    exact, rounded = weights(), weights("trainer.precision=bfloat16")
    assert exact.dtype == rounded.dtype == torch.float32
    assert 0 < (exact - rounded).abs().max() < 0.05
    if kind == "tiny":
        shutil.rmtree(cache_dir() / "models")
        assert not checkpointed
        assert torch.equal(weights("trainer.gradient_checkpointing=true"), exact)
        assert len(checkpointed) == 1


@pytest.mark.parametrize("loss", ["tokens", "choices"])
def test_a_model_that_responds_by_number_learns_from_the_expert(loss, tmp_path, capsys):
    numbered = ["prompt=numbered", "evaluation.split=train", "evaluation.decoding_seeds=1", "rollout.num_tasks=2"]
    imitating = ["warmstart.episodes=60", "warmstart.epochs=8", "warmstart.batch_size=8"]
    settings = [*TINY, *numbered, *imitating, "trainer.iterations=1"]
    assert (
        train(tmp_path / "run", f"warmstart.loss={loss}", "warmstart.source=expert", base=settings)["success_before"]
        > 0.9
    )
    status, out, _ = run(capsys, "eval", *settings, "policy=expert")
    assert status == 0
    assert '"success": 1.0' in out


def test_where_no_actions_are_listed_none_has_a_number(capsys, tmp_path):
    status, _, err = run(capsys, "eval", "env=secret_word", "policy=random", "prompt=numbered", "engine.constrain=none")
    assert status == 2
    assert "prompt.response='{number}' is the number of an action, and this environment lists none" in err


def test_choices_need_admissible_responses(capsys):
    status, _, err = run(capsys, "train", *TINY, "warmstart.loss=choices", "engine.constrain=none")
    assert status == 2
    assert (
        "warmstart.loss=choices is of admissible responses: set engine.constrain=admissible, or warmstart.loss=tokens."
        in err
    )


SCORER = ["model=features", "warmstart.source=expert"]


@pytest.mark.parametrize(
    ("owner", "part", "overrides"),
    [
        (features, "hashing.py", SCORER), (features, "page.py", SCORER), (language_model, "language_model.py", []),
        (trie, "trie.py", []), (plans, "plans.py", []),
    ],
)  # fmt: skip
def test_what_decides_the_meaning_of_weights_makes_them_anew(tmp_path, monkeypatch, owner, part, overrides):
    """Any module of a package counts."""
    run = load_run([*TINY, *overrides])
    folder = shutil.copytree(Path(owner.__file__).parent, tmp_path / "copy")
    monkeypatch.setattr(owner, "__file__", str(folder / Path(owner.__file__).name))
    saved = []
    for line in ("", "", "# another one\n"):
        (folder / part).write_text((folder / part).read_text() + line)
        run.model.initial(run, Progress())
        saved.append(len(list((cache_dir() / "models").iterdir())))
    assert saved == [1, 1, 2]


def test_every_prompt_imitates_the_same_episodes(tmp_path):
    """Also one whose answers are read in small letters."""
    file = tmp_path / "loud_game.py"
    file.write_text(GAME.format(word="LOUD", name="Loud").replace('("cat", "dog")', '("CAT", "DOG")'))
    load_plugins([str(file)])
    options = ["env=loud", "warmstart.episodes=4", "rollout.num_tasks=2", "prompt=instruct"]
    for reading in ("published", "strict"):
        episodes, key = episodes_to_imitate(load_run([*options, f"prompt.response_reading={reading}"]), 0, Progress())
        assert {step.action for one in episodes for step in one.steps} == {"CAT", "DOG"}
    assert key == episodes_to_imitate(load_run(options), 0, Progress())[1]
    forget("warm_start_tests/Loud-v0", "loud_game")


def test_episodes_to_imitate_have_no_responses_that_write_notes():
    settings = ("memory=notes", "memory.every=1", "engine.constrain=none", "warmstart.source=expert")
    episodes, _ = episodes_to_imitate(load_run([*settings, "warmstart.episodes=2"]), 0, Progress())
    steps = [step for one in episodes for step in one.steps]
    assert [step.action for step in steps if step.action not in step.admissible_actions] == []


def test_a_changed_text_in_a_custom_environment_makes_the_warm_start_anew(tmp_path):
    """As two processes see it: the second one loads the file after it was changed."""
    file = tmp_path / "shouting_game.py"
    made = {}
    for word in ("please", "now", "please"):
        file.write_text(GAME.format(word=word, name="Shout"))
        load_plugins([str(file)])
        settings = load_run([*TINY[1:], "env=shout", "rollout.num_tasks=2"])
        episodes, _ = episodes_to_imitate(settings, 0, Progress())
        request, _ = next(iter(episodes[0].requests(settings.memory.make(), settings.prompt)))
        assert f"Say {word}." in request.prompt
        made.setdefault(word, set()).add(initial_weights(settings, settings.model, Progress()))
        forget("warm_start_tests/Shout-v0", "shouting_game")
    assert [len(folders) for folders in made.values()] == [1, 1]
    assert made["please"] != made["now"]


def forget(id, module):
    """Clear the caches of this process."""
    import gymnasium

    from hgpo_gym.envs import ENVIRONMENTS

    del ENVIRONMENTS[id], gymnasium.registry[id], sys.modules[module]


class Reading(TextEnv):
    """It speaks from a file, or from a library."""

    task_ids = ("one",)

    def __init__(self, *, words: str | Path, library: str = "1.0", loud: bool = False, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.texts_key = library
        self.words = words

    def begin_episode(self, task_id):
        return Turn("Hello.", task="Read.")

    def take_action(self, action):
        return Turn("Bye.", terminated=True)


for version in (0, 1):
    register(f"warm_start_tests/Reading-v{version}", Reading, max_episode_steps=2, description="for tests")


def test_what_texts_depend_on_is_in_their_key_and_places_are_not(tmp_path):
    for name, text in (("a", "tea"), ("b", "tea"), ("c", "coffee")):
        (tmp_path / name).write_text(text)

    def key(name="a", version=0, **options):
        env = TextVectorEnv(f"warm_start_tests/Reading-v{version}", 1, words=str(tmp_path / name), **options)
        env.close()
        return env.texts_key

    assert key() == key("b") == key(workers=1)
    others = [partial(key, "c"), partial(key, version=1), partial(key, library="1.1"), partial(key, loud=True)]
    assert len({key(), *(other() for other in others)}) == 5
    folders = []
    for name in ("d", "e"):
        (tmp_path / name).mkdir()
        folders.append(key(name))
    assert folders[0] == folders[1]
