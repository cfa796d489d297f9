"""Forms of memory: chosen by name in a run, in the wrapper and by `make_memory`, built in or custom."""

import pytest

from hgpo_gym.config.compose import ConfigError, load_run
from hgpo_gym.envs import make_vec
from hgpo_gym.memory import MEMORIES, ContextWrapper, Memory, make_memory, register_memory


class Landmarks(Memory):
    """Show the steps at signs alone, and compare observations without their case."""

    def show(self, context):
        return context._replace(history=[step for step in self.past_steps() if "sign" in step.observation])

    def state(self, observation, admissible_actions):
        return super().state(observation, admissible_actions).lower()


@pytest.fixture
def landmarks():
    register_memory("landmarks", Landmarks)
    yield
    del MEMORIES._all["landmarks"]


def shown_by(memory):
    """Return the observations that the context after three steps shows."""
    for place in ("a sign", "a hall", "a door"):
        memory.observe(place)
        memory.record("go on")
    return [past.observation for past in memory.observe("an exit").history]


def test_what_each_form_shows(landmarks):
    assert shown_by(make_memory(window=2)) == ["a hall", "a door"]
    assert shown_by(make_memory("full")) == ["a sign", "a hall", "a door"]
    assert shown_by(make_memory("none")) == []
    assert shown_by(make_memory("landmarks")) == ["a sign"]


def test_a_form_of_ones_own_is_a_choice_of_a_run_and_of_the_wrapper(landmarks):
    run = load_run(["memory=landmarks", "memory.history_length=1"])
    assert isinstance(run.memory.make(), Landmarks)
    assert run.changed(seed=1).memory.choice == ("landmarks", {"history_length": 1, "key": "observation"})
    env = ContextWrapper(make_vec("hgpo_gym/SignpostMaze-v0", num_tasks=1), memory="landmarks", history_length=1)
    _, infos = env.reset(seed=0)
    assert infos["context_keys"].shape == (1, 2)
    memory = make_memory("landmarks")
    assert memory.observe("A Hall").keys[0] == make_memory("none").observe("a hall").keys[0]


def test_the_window_of_an_environment_is_for_that_form_alone():
    assert load_run(["env=webshop", "env.data=generated"]).memory.make().window == 1
    assert "window" not in load_run(["env=webshop", "env.data=generated", "memory=full"]).resolved["memory"]
    with pytest.raises(ConfigError, match=r"memory=full has no window. These have: window"):
        load_run(["memory=full", "memory.window=3"])
    for setting, message in (
        ("memory.window=-1", "memory.window=-1: choose 0 or more steps"),
        ("memory.window=a", "whole"),
    ):
        with pytest.raises(ValueError, match=message):
            load_run([setting])
    with pytest.raises(ValueError, match=r"Unknown memory 'ful'. Did you mean 'full'"):
        make_memory("ful")
