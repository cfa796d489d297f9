"""Context keys against a direct comparison of windows, prompts, and the vector wrapper in every autoreset mode."""

import pickle
import random
import re
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import (
    KEY_FUNCTIONS,
    ContextWrapper,
    KeyFunction,
    PromptTemplate,
    hash_text,
    make_memory,
    register_key_function,
)
from hgpo_gym.memory.readings import READINGS, Reading, strict


def keys_of(observations, actions=None, **options):
    memory = make_memory(**options)
    rows = []
    for step, observation in enumerate(observations):
        rows.append(memory.observe(observation, ("a", "b")).keys.copy())
        memory.record(actions[step] if actions else "a")
    return np.array(rows)


@pytest.mark.promise("Context keys are equal exactly when the histories they stand for are.")
def test_keys_are_equal_exactly_when_the_windows_are():
    generator = np.random.default_rng(1)
    episodes = [[f"place {n}" for n in generator.integers(3, size=12)] for _ in range(20)]
    history_length = 4
    windows, keys = [], []
    for episode in episodes:
        for row, step_keys in enumerate(keys_of(episode, history_length=history_length)):
            keys.append(step_keys)
            windows.append([tuple(episode[row - k : row + 1]) if row >= k else None for k in range(history_length + 1)])
    for level in range(history_length + 1):
        for one in range(len(keys)):
            if windows[one][level] is None:
                assert keys[one][level] == 0
                continue
            for other in range(one):
                same = windows[one][level] == windows[other][level]
                assert (keys[one][level] == keys[other][level]) == same


@pytest.mark.parametrize("key", ["observation", "observation+action"])
def test_a_batch_from_records_has_the_keys_of_the_memory(key):
    generator = np.random.default_rng(2)
    observations = [f"place {n}" for n in generator.integers(3, size=30)]
    actions = [f"go {n}" for n in generator.integers(2, size=30)]
    records = StepBatch.from_records(
        group=["g"] * 30, trajectory=[0] * 10 + [1] * 20, step=[*range(10), *range(20)], observation=observations,
        action=actions, reward=[0.0] * 30, history_length=3, key=key,
    )  # fmt: skip
    one = keys_of(observations[:10], actions[:10], history_length=3, key=key)
    other = keys_of(observations[10:], actions[10:], history_length=3, key=key)
    np.testing.assert_array_equal(records.context_keys, np.concatenate((one, other)))


def test_key_functions_choose_what_is_compared():
    def level_1(first_action, admissible, **options):
        memory = make_memory(history_length=1, **options)
        memory.observe("here", admissible)
        memory.record(first_action)
        return memory.observe("there", ("x",)).keys[1]

    assert level_1("a", ("a",)) == level_1("b", ("a", "b"))
    assert level_1("a", ("a",), key="observation+action") != level_1("b", ("a",), key="observation+action")
    assert level_1("a", ("a",), key="observation+admissible") != level_1("a", ("a", "b"), key="observation+admissible")
    first_word = KeyFunction(lambda observation, _: observation[:1])
    assert level_1("a", (), key=first_word) == keys_of(["home", "tent"], history_length=1, key=first_word)[1, 1]


def test_a_custom_key_function_gets_a_name():
    words = KeyFunction(lambda observation, _: " ".join(observation.split()))
    try:
        register_key_function("words", words)
        register_key_function("words", words)
        assert make_memory(window=0, history_length=0, key="words").observe("a  b").keys == hash_text("a b")
        for name in ("words", "observation"):
            with pytest.raises(ValueError, match=f"The key function name '{name}' is taken: choose another"):
                register_key_function(name, KEY_FUNCTIONS["observation"])
        register_key_function("words", KeyFunction(lambda observation, _: observation))  # defined again, in a notebook
        assert make_memory(window=0, history_length=0, key="words").observe("a  b").keys == hash_text("a  b")
    finally:
        del KEY_FUNCTIONS["words"]


def test_how_far_keys_look_and_what_the_prompt_shows_are_separate():
    for window, shown in ((0, 0), (2, 2), (None, 5)):
        memory = make_memory(window=window, history_length=3)
        for step in range(5):
            memory.observe(f"place {step}")
            memory.record(f"go {step}")
        context = memory.observe("place 5")
        assert [past.observation for past in context.history] == [f"place {n}" for n in range(5 - shown, 5)]
        assert context.keys.shape == (4,)
        assert context.step == 5


@pytest.mark.promise("Context keys are the same on every machine.")
def test_hashes_are_the_same_on_every_machine_and_survive_any_text():
    assert hash_text("You see a fridge 1.") == 0x374E24ABD7D7D9D3
    assert len({hash_text(text) for text in ("", " ", "\ud800", "🦊", "a" * 10**6)}) == 5


def test_order_of_calls_is_enforced():
    memory = make_memory()
    with pytest.raises(RuntimeError, match="before observe"):
        memory.record("x")
    memory.observe("a")
    with pytest.raises(RuntimeError, match="without record"):
        memory.observe("b")


def test_prompts_show_history_and_responses_come_back():
    prompt = PromptTemplate.named("instruct")
    memory = make_memory(window=1)
    first = prompt.render("Find {it}.", memory.observe("A {room}.", ("go", "stay")))
    assert "Find {it}." in first
    assert "A {room}." in first
    assert "go, stay" in first
    memory.record("go")
    later = prompt.render("Find it.", memory.observe("Outside.", ("stay",)))
    assert "Step 1. You saw: A {room}. You did: go" in later
    assert prompt.parse_action("<think>hm\n</think> so <action> go to\n1 </action>") == "go to\n1"
    assert prompt.parse_action("go") == ""
    assert prompt.parse_action(prompt.write_response("go")) == "go"
    bare = PromptTemplate.named("bare")
    assert bare.parse_action(" go \n") == "go"


def described_by_a_pattern(response):
    """Parse the instruct form strictly, by a regular expression with two greedy runs."""
    match = re.search("<think>.*</think>.*<action>(.*?)</action>", response, flags=re.DOTALL)
    return Reading(match.group(1).strip(), True) if match else Reading("", False)


def test_the_strict_reading_is_that_of_its_pattern():
    pieces = ["<think>", "</think>", "<action>", "</action>", "go ", "<", "\n", "</action", "</", "action>"]
    generator = random.Random(0)
    seen = set()
    for _ in range(20_000):
        response = "".join(generator.choices(pieces, k=generator.randrange(12)))
        assert strict(response) == described_by_a_pattern(response), response
        seen.add(strict(response).in_form)
    assert seen == {True, False}


@pytest.mark.parametrize("reading", READINGS)
def test_reading_a_response_takes_no_more_operations_when_it_is_longer(reading):
    """Each is a search for a short text, so that all of it is linear in the response's length."""

    def operations(response):
        calls = 0

        def count(_frame, event, _argument):
            nonlocal calls
            calls += event == "c_call"

        prompt = replace(PromptTemplate.named("instruct"), response_reading=reading)
        sys.setprofile(count)
        try:
            prompt.read(response)
        finally:
            sys.setprofile(None)
        return calls

    tags = "<think></think><action>"  # what a regular expression tries in all combinations before it gives up
    assert operations(tags * 10) == operations(tags * 100_000) > 0


@pytest.mark.parametrize(
    ("response", "action", "in_form"),
    [
        ("<think>hm</think><action>Go to Desk 1</action>", "go to desk 1", True),
        ("<action>look</action>", "look", False),
        ("<action>look</action><think>late</think>", "look", True),
        ("<think>a</think><action>first</action> or <action>second</action>", "first", True),
        ("<think>a</think><action>open", "", False),
        ("<think>去</think><action>look</action>", "look", False),
        ("</action><think></think><action>look</action>", "", True),
        ("look", "", False),
    ],
)
def test_responses_can_be_read_as_the_published_code_reads_them(response, action, in_form):
    prompt = replace(PromptTemplate.named("instruct"), response_reading="published")
    assert prompt.read(response) == (action, in_form)


def test_wrong_templates_are_refused():
    with pytest.raises(ValueError, match=r"Did you mean 'bare'\?"):
        PromptTemplate.named("bar")
    good = {
        "first": "{task}", "later": "{history}", "past_step": "", "admissible_separator": " ", "response": "{action}",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"placeholder in prompt.first 'taks'. Did you mean 'task'\?"):
        PromptTemplate(**good | {"first": "{taks}"}, action_pattern="(.*)")
    with pytest.raises(ValueError, match="exactly one group"):
        PromptTemplate(**good, action_pattern=".*")
    with pytest.raises(ValueError, match=r"action_pattern='\(' is no regular expression: missing \)"):
        PromptTemplate(**good, action_pattern="(")
    with pytest.raises(ValueError, match=r"prompt.first='\{task': expected '\}' .* is written twice"):
        PromptTemplate(**good | {"first": "{task"}, action_pattern="(.*)")
    with pytest.raises(ValueError, match=r"prompt.response_reading 'strickt'. Did you mean 'strict'\?"):
        PromptTemplate(**good, action_pattern=None, response_reading="strickt")
    with pytest.raises(ValueError, match="response_reading=published reads <think> and <action>, and this prompt has"):
        PromptTemplate(**good, action_pattern="(.*)", response_reading="published")


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_wrapper_gives_prompts_and_keys_in_every_autoreset_mode(mode):
    envs = [lambda: gymnasium.make("hgpo_gym/SignpostMaze-v0", sections=1, expert=True)] * 3
    env = ContextWrapper(gymnasium.vector.SyncVectorEnv(envs, autoreset_mode=mode), history_length=1)
    prompts, infos = env.reset(seed=0)
    for _ in range(7):
        assert all(text in prompt for text, prompt in zip(infos["observation"], prompts, strict=True))
        for row, observation in enumerate(infos["observation"]):
            begins = infos["context_keys"][row, 1] == 0
            assert infos["context_keys"][row, 0] == np.uint64(hash_text(observation)).view(np.int64)
            assert begins == ("\n>" not in prompts[row].rpartition("\n(")[0])
        actions = [action or "" for action in infos["expert_action"]]
        prompts, _, terminations, _, infos = env.step(actions)
        if mode == AutoresetMode.DISABLED and terminations.any():
            prompts, infos = env.reset(options={"reset_mask": terminations})


def test_the_wrapper_serves_a_text_vector():
    env = ContextWrapper(TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks=2, group_size=2), "bare", window=0)
    prompts, infos = env.reset(seed=0)
    assert prompts in env.observation_space
    assert infos["context_keys"].shape == (4, 3)
    prompts, *_, infos = env.step(["walk on", "walk on", "odd", "walk on"])
    assert "bare corridor" in prompts[0]
    assert infos["context_keys"][0, 1] == infos["context_keys"][1, 1] != 0
    env.close()


def test_a_prompt_can_say_what_actions_stand_for():
    template = PromptTemplate.named("described")
    memory = make_memory()
    context = memory.observe("Results", ("click[a1]", "click[next]"), ("Red cup", ""))
    assert template.render("buy", context) == "buy\nResults\n(click[a1] (Red cup), click[next])\n>"
    memory.reset()
    unexplained = memory.observe("Results", ("click[a1]", "click[next]"))
    assert template.render("buy", unexplained) == PromptTemplate.named("bare").render("buy", unexplained)


def test_responses_can_be_numbers_of_actions():
    template = PromptTemplate.named("numbered")
    actions = ("click[a1]", "click[next]")
    context = make_memory().observe("Results", actions, ("Red cup", ""))
    assert template.render("buy", context) == "buy\nResults\n(1: click[a1] (Red cup), 2: click[next])\n>"
    assert [template.write_response(action, actions=actions) for action in actions] == ["1", "2"]
    assert template.read(" 2 ", actions) == ("click[next]", True)
    for nonsense in ("0", "3", "-1", "1.0", "click[next]", "", "9" * 5000, "\u0662"):
        assert template.read(nonsense, actions) == ("", False), nonsense
    with pytest.raises(ValueError, match="'search' is not among the actions that have a number"):
        template.write_response("search", actions=actions)
    thinking = replace(template, response="<think>hm</think><action>{number}</action>", action_pattern=None)
    assert thinking.read(thinking.write_response("click[next]", actions=actions), actions) == ("click[next]", True)


class CountedTemplate(str):
    """The form of a past step, which counts how often it is filled in."""

    filled = 0

    def format(self, *args, **values):
        self.filled += 1
        return super().format(*args, **values)


def test_past_steps_of_a_whole_episode_are_formatted_once():
    """The prompts are those of a tuple of the same steps, which is formatted anew."""
    counted = CountedTemplate("{step}: {observation} > {action}\n")
    template = replace(PromptTemplate.named("brief"), past_step=counted)
    memory, contexts = make_memory("full"), []
    for step in range(40):
        before = counted.filled
        context = memory.observe(f"place {step % 3}")
        contexts.append((context, context._replace(history=tuple(context.history))))
        prompts = [template.render("Go.", context) for context in contexts[-1]]
        assert prompts[0] == prompts[1]
        assert counted.filled - before == bool(step) + step
        memory.record("go on")
    for one, other in contexts:  # later steps change no context
        assert template.render("Go.", one) == template.render("Go.", other)
        assert one.history == other.history
        assert pickle.loads(pickle.dumps(one.history)) == other.history
        assert one.history[2:] == other.history[2:]
        shorter = one._replace(history=one.history[2:]), other._replace(history=other.history[2:])
        assert template.render("Go.", shorter[0]) == template.render("Go.", shorter[1])
