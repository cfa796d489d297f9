"""TRL's trainer plays our environments, and its loss has our advantages, token by token."""

import copy
import json
import re
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("trl")

from trl import GRPOTrainer

from examples.trl_hgpo import ENV, OPTIONS, make_trainer, tiny_chat_model
from hgpo_gym.adapters.trl import StepAdvantageTrainer, ToolEnvironment, task_rows
from hgpo_gym.advantages import ESTIMATORS, estimate, register_estimator
from hgpo_gym.advantages.batch import StepBatch

TASKS = ("red-blue", "blue-red")  # the first sign tells them apart
EIGHT = {"per_device_train_batch_size": 8}  # four episodes of each task
GAMMA, PENALTY, LEVELS = 0.95, 0.1, 3


class Watched(StepAdvantageTrainer):
    """Keeps what reaches TRL's loss."""

    seen: list

    def _compute_loss(self, model, inputs):
        self.seen.append({name: value.clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)})
        return super()._compute_loss(model, inputs)


class Scripted(GRPOTrainer):
    """Says in each turn what `script` has for it, in place of the model."""

    script: tuple[str, ...]

    def _generate_single_turn(self, prompt_ids, *_images, **_options):
        output = [self.processing_class.decode(ids).count("<|assistant|>") - 1 for ids in prompt_ids]
        return [self.processing_class.encode(f"{self.script[turn]}<|endoftext|>") for turn in output], None


class WatchedScript(Watched, Scripted):
    """Plays the script, and keeps what reaches TRL's loss."""


@pytest.fixture
def taken_off(monkeypatch):
    """An estimator that shows which steps there are, and which of them are not valid."""
    monkeypatch.setattr(ESTIMATORS, "_all", dict(ESTIMATORS._all))
    register_estimator("taken_off", lambda batch: 1 - batch.penalty)
    return "taken_off"


@pytest.fixture(scope="module")
def chat_model():
    return tiny_chat_model(TASKS, epochs=16)


def trained(chat_model, folder, trainer=Watched, **settings):
    model, tokenizer = chat_model
    Watched.seen = []
    trainer = make_trainer(
        copy.deepcopy(model), tokenizer, TASKS, str(folder), trainer=trainer, **{**EIGHT, **settings}
    )
    trainer.train()
    return trainer


def acts(action):
    """The text of a call."""
    return f'<call>{{"name": "act", "arguments": {{"action": "{action}"}}}}</call>'


def responses_of(row, tokenizer):
    """The tokens of each response of the model in a row, as (positions, text)."""
    mask = (row["completion_mask"] * row["tool_mask"]).bool().numpy()
    responses, positions = [], []
    for position, generated in enumerate([*mask, False]):
        if generated:
            positions.append(position)
        elif positions:
            responses.append((positions, tokenizer.decode(row["completion_ids"][positions])))
            positions = []
    return responses


def replayed(task_id, texts):
    """For each response up to the end of the episode: the observations so far, reward, and whether it was valid."""
    env = gymnasium.make(ENV, **OPTIONS)
    observation, _ = env.reset(seed=0, options={"task_id": task_id})
    seen, steps, over = [observation], [], False
    for text in texts:
        if over:
            break
        calls = re.findall(r'<call>(\{"name": "act", "arguments": \{"action": "[^"\\\n]*"\}\})</call>', text)
        before, reward, valid = tuple(seen), 0.0, bool(calls)
        for call in calls:
            if over:
                break
            observation, gain, terminated, truncated, info = env.step(json.loads(call)["arguments"]["action"])
            seen.append(observation)
            reward, valid, over = reward + gain, valid and info["action_valid"], terminated or truncated
        steps.append((before, reward, valid))
    return steps


def reference(name, rows):
    """The advantages by hand: contexts are the last observations themselves, numbered."""
    flat = [(task, member, step) for member, (task, steps) in enumerate(rows) for step in enumerate(steps)]
    keys = np.zeros((len(flat), LEVELS), dtype=np.int64)
    for level in range(LEVELS):
        windows = [before[-level - 1 :] for _, _, (_, (before, _, _)) in flat]
        numbers = {window: n + 1 for n, window in enumerate(dict.fromkeys(windows)) if len(window) == level + 1}
        keys[:, level] = [numbers.get(window, 0) for window in windows]
    batch = StepBatch(
        group=np.array([TASKS.index(task) for task, _, _ in flat]),
        trajectory=np.array([member for _, member, _ in flat]),
        step=np.array([number for _, _, (number, _) in flat]),
        reward=np.array([reward for _, _, (_, (_, reward, _)) in flat]),
        context_keys=keys,
        penalty=np.array([0.0 if valid else PENALTY for _, _, (_, (_, _, valid)) in flat]),
    )
    values = estimate(name, batch, **({} if name == "grpo" else {"gamma": GAMMA}))
    return np.split(values, np.cumsum([len(steps) for _, steps in rows])[:-1])


@pytest.mark.promise("Inside TRL the loss has our advantages.")
@pytest.mark.parametrize("name", ["hgpo", "gigpo"])
@pytest.mark.parametrize("temperature", [0.7, 1.2])
def test_what_reaches_the_loss_is_our_estimate(chat_model, tmp_path, name, temperature):
    trained(chat_model, tmp_path, advantage=name, invalid_action_penalty=PENALTY, max_steps=1, temperature=temperature)
    tokenizer = chat_model[1]
    [seen] = Watched.seen
    rows = rows_of([seen])
    tasks = [TASKS["blue" in tokenizer.decode(row["prompt_ids"])] for row in rows]
    responses = [responses_of(row, tokenizer) for row in rows]
    steps = [replayed(task, [text for _, text in row]) for task, row in zip(tasks, responses, strict=True)]
    assert len(rows) == 8
    assert tasks.count(TASKS[0]) == 4
    assert len({len(row) for row in steps}) > 1
    expected = reference(name, list(zip(tasks, steps, strict=True)))
    assert max(np.ptp(values) for values in expected) > 0.1  # differ within an episode
    for row, turns, values in zip(rows, responses, expected, strict=True):
        tokens = np.zeros(len(row["advantages"]))
        for (positions, _), value in zip(turns, values, strict=False):  # a response after the end is no step
            tokens[positions] = value
        np.testing.assert_allclose(row["advantages"].numpy(), tokens, rtol=1e-6, atol=1e-6)


def rows_of(batches):
    """The rows of batches that reached the loss."""
    return [
        {key: seen[key][n] for key in seen if seen[key].dim() > 1}
        for seen in batches
        for n in range(len(seen["advantages"]))
    ]


def values_of_turns(chat_model):
    """For each row, the one advantage that the tokens of each turn have."""
    [seen] = Watched.seen
    rows = rows_of([seen])
    turns = [[row["advantages"][positions] for positions, _ in responses_of(row, chat_model[1])] for row in rows]
    assert all((values == values[0]).all() for row in turns for values in row)
    return [[pytest.approx(float(values[0])) for values in row] for row in turns]


def test_calls_that_trl_does_not_run_are_no_step(chat_model, tmp_path, taken_off):
    """At max_tool_calling_iterations TRL lets the model speak once more and acts no more."""
    WatchedScript.script = (acts("walk on"), acts("fly"), acts("open red door"))
    once = {"advantage": taken_off, "invalid_action_penalty": PENALTY, "max_steps": 1, "trainer": WatchedScript}
    trained(chat_model, tmp_path, max_tool_calling_iterations=2, **once)
    assert values_of_turns(chat_model) == [[1, 1 - PENALTY, 0]] * 8
    WatchedScript.script = (acts("walk on"), acts("fly"), "I give up.")
    trained(chat_model, tmp_path, max_tool_calling_iterations=2, **once)
    assert values_of_turns(chat_model) == [[1, 1 - PENALTY, 1 - PENALTY]] * 8


@pytest.mark.parametrize("other", ['{"name": "fly", "arguments": {}}', '{"name": "act", "arguments": {"deed": "fly"}}'])
def test_a_turn_with_a_call_that_trl_cannot_run_is_not_valid(chat_model, tmp_path, taken_off, other):
    WatchedScript.script = (f"{acts('walk on')}<call>{other}</call>", acts("walk on"), "I give up.")
    once = {"advantage": taken_off, "invalid_action_penalty": PENALTY, "max_steps": 1, "trainer": WatchedScript}
    trained(chat_model, tmp_path, **once)
    assert values_of_turns(chat_model) == [[1 - PENALTY, 1, 1 - PENALTY]] * 8


def test_grpo_is_what_trl_itself_computes(chat_model, tmp_path):
    """All of an episode's steps get its value; TRL divides by the deviation + 1e-4 and we by + 1e-6."""
    trainer = trained(chat_model, tmp_path, advantage="grpo", max_steps=1, num_iterations=1)
    [seen] = Watched.seen
    ours = seen["advantages"].abs().amax(dim=1).sort().values
    theirs = torch.tensor(list(trainer._logs["advantages"])).abs().sort().values
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
    assert theirs.max() > 0.4


def test_an_update_moves_the_weights_along_them(chat_model, tmp_path):
    trainer = trained(chat_model, tmp_path, max_steps=2, logging_steps=1)
    assert len(Watched.seen) == 2
    assert all(np.isfinite(entry["loss"]) for entry in trainer.state.log_history[:-1])
    assert any((value != chat_model[0].state_dict()[name]).any() for name, value in trainer.model.state_dict().items())


def test_rows_of_tasks():
    assert task_rows(["a"], instruction="Play.", seeds=[3, 4]) == [
        {"prompt": [{"role": "user", "content": "Play.\n"}], "task_id": "a", "seed": seed} for seed in (3, 4)
    ]


def test_refusals(chat_model, tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'hgpo'"):
        trained(chat_model, tmp_path, advantage="hgppo", max_steps=1)
    with pytest.raises(ValueError, match="max_tool_calling_iterations=0: TRL would run no call"):
        trained(chat_model, tmp_path, max_tool_calling_iterations=0, max_steps=1)
    with pytest.raises(ValueError, match="column `task_id`"):
        ToolEnvironment(ENV, **OPTIONS).reset(prompt=[])
    model, tokenizer = chat_model
    arguments = {"model": model, "processing_class": tokenizer, "environment_factory": partial(ToolEnvironment, ENV)}
    with pytest.raises(ValueError, match="leave them out"):
        StepAdvantageTrainer(
            **arguments,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=make_trainer(model, tokenizer, TASKS, str(tmp_path), max_steps=1, **EIGHT).args,
        )


def test_responses_end_as_the_template_and_settings_say(chat_model, tmp_path):
    model, tokenizer = chat_model
    trainer = trained(chat_model, tmp_path, partial(Watched, stop=["</call>"]), max_steps=1)
    output = [text for row in rows_of(Watched.seen) for _, text in responses_of(row, tokenizer)]
    called = [text for text in output if "</call>" in text]
    assert len(called) > 8
    assert all(text.endswith("</call>") and text.count("</call>") == 1 for text in called)
    assert trainer.generation_config.eos_token_id == [tokenizer.eos_token_id]
    other = copy.deepcopy(tokenizer)
    other.chat_template = tokenizer.chat_template.replace("{{ eos_token }}", "<|tool|>")
    stopping = partial(StepAdvantageTrainer, stop_token_ids=[3])
    trainer = make_trainer(copy.deepcopy(model), other, TASKS, str(tmp_path), trainer=stopping, **EIGHT)
    ends = sorted({tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|tool|>"), 3})
    assert trainer.generation_config.eos_token_id == trainer.eos_token_ids == ends
