"""verl finds our estimators by name, and what it computes with them is what we compute."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.ray_trainer import compute_advantage

from hgpo_gym.adapters.single_episode import SingleEpisode
from hgpo_gym.adapters.verl import (
    FIELDS,
    OPTIONAL_FIELDS,
    describe_steps,
    row_steps,
    with_response_ends,
)
from hgpo_gym.adapters.verl.advantages import register_estimators
from hgpo_gym.advantages import ESTIMATORS, estimate, register_estimator
from hgpo_gym.advantages.batch import StepBatch
from tests.support import ROOT, golden
from tests.support.chat_models import chat_tokenizer

COLUMNS = ("group", "trajectory", "step", "observation", "reward")
IN_VERL = {"grpo": "hgpo_gym.grpo", "gigpo": "gigpo", "hgpo": "hgpo", "hgpo_gae": "hgpo_gae"}


def random_batch(seed=0, tasks=3, members=4, length=6):
    """Episodes of different lengths over few observations, rewards and penalties here and there."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, length + 1, size=tasks * members)
    trajectory = np.repeat(np.arange(len(lengths)), lengths)
    return StepBatch.from_records(
        group=(trajectory // members).tolist(),
        trajectory=trajectory.tolist(),
        step=np.concatenate([np.arange(n) for n in lengths]).tolist(),
        observation=[f"room {n}" for n in rng.integers(3, size=len(trajectory))],
        reward=rng.choice([0.0, 1.0, 10.0], size=len(trajectory)).tolist(),
        penalty=rng.choice([0.0, 0.1], size=len(trajectory)).tolist(),
        history_length=2,
    )


def described(batch):
    """The step of each row of our batch, as verl's rows say it."""
    columns = {name: getattr(batch, name, None) for name in (*FIELDS, *OPTIONAL_FIELDS)} | dict(batch.extras)
    columns = {name: values for name, values in columns.items() if values is not None}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def as_verl(groups, mask):
    mask = torch.as_tensor(mask)
    tensors = {"response_mask": mask, "token_level_rewards": torch.full(mask.shape, 99.0)}
    return DataProto.from_dict(tensors, non_tensors={"uid": np.array([f"task {n}" for n in groups], dtype=object)})


def row_a_step(batch, seed=0):
    """Every row one answer, of a length of its own, padded on the right. Where episodes of several rows tell that rows
    are steps, there is a hole in some."""
    lengths = np.random.default_rng(seed).integers(1, 6, size=len(batch))
    mask = (np.arange(6) < lengths[:, None]).astype(np.int64)
    if len(np.unique(batch.trajectory)) < len(batch):
        mask[lengths == 5, 2] = 0
    return as_verl(batch.group, mask), [[step] for step in described(batch)]


def advantages(data, steps, name, config=None):
    with row_steps(steps):
        data = compute_advantage(data, name, config=config)
    torch.testing.assert_close(data.batch["returns"], data.batch["advantages"])
    return data.batch["advantages"].numpy()


def config(**settings):
    return AlgoConfig(**{"gamma": 0.95, **settings})


def test_verls_own_estimators_stay():
    assert get_adv_estimator_fn("grpo").__module__ == "verl.trainer.ppo.core_algos"
    in_verl = dict(zip(ESTIMATORS, register_estimators(), strict=True))
    assert in_verl.items() >= (IN_VERL | {"gae": "hgpo_gym.gae", "rloo": "hgpo_gym.rloo", "crbc": "crbc"}).items()


def test_an_estimator_of_your_own(monkeypatch):
    monkeypatch.setattr(ESTIMATORS, "_all", dict(ESTIMATORS._all))
    register_estimator("just_returns", lambda batch: batch.reward)
    assert "just_returns" in register_estimators()
    batch = random_batch()
    data, steps = row_a_step(batch)
    np.testing.assert_allclose(advantages(data, steps, "just_returns", config())[:, 0], batch.reward)


@pytest.mark.promise("Inside verl estimators have the values computed apart from this package.")
def test_golden_advantages():
    checked = 0
    for case in golden.load("advantages"):
        for expected in case["expected"]:
            options = {name: value for name, value in expected.items() if name not in ("estimator", "advantage")}
            by_std = options.pop("norm", "mean_std_norm") == "mean_std_norm"
            records = {column: case[column] for column in COLUMNS}
            batch = StepBatch.from_records(**records, history_length=options.get("history_length", 2))
            data, steps = row_a_step(batch)
            verls = {"gamma": case["gamma"], "norm_adv_by_std_in_grpo": by_std}
            settings = OmegaConf.create({**verls, "advantage_options": options})
            found = advantages(data, steps, IN_VERL[expected["estimator"]], settings)
            mask = data.batch["response_mask"].numpy()
            all_expected = np.array(expected["advantage"])[:, None] * mask
            np.testing.assert_allclose(found, all_expected, rtol=1e-6, atol=1e-6, err_msg=str(options))
            checked += len(found)
    assert checked > 40_000


@pytest.mark.parametrize("name", list(IN_VERL))
@pytest.mark.parametrize("seed", [0, 1])
def test_a_row_a_step_in_any_order(name, seed):
    batch = random_batch(seed)
    data, steps = row_a_step(batch, seed)
    order = np.random.default_rng(seed).permutation(len(batch))
    shuffled = data.select_idxs(order)
    found = advantages(shuffled, [steps[row] for row in order], IN_VERL[name], config())
    options = {"norm": "mean_std_norm", **({} if name == "grpo" else {"gamma": 0.95})}
    all_expected = estimate(name, batch, **options)[order, None] * shuffled.batch["response_mask"].numpy()
    np.testing.assert_allclose(found, all_expected, rtol=1e-6, atol=1e-6)


def test_a_row_a_conversation():
    """The n-th stretch of the model's tokens is the n-th step; what it says after the end gets nothing."""
    batch = random_batch(3)
    values, steps = estimate("hgpo", batch), described(batch)
    episodes = [np.flatnonzero(batch.trajectory == number) for number in range(batch.trajectory.max() + 1)]
    mask, all_expected = np.zeros((len(episodes), 40), dtype=np.int64), np.zeros((len(episodes), 40))
    for row, of_episode in enumerate(episodes):
        for number, step in enumerate([*of_episode, None]):
            place = slice(5 * number, 5 * number + 1 + (row + number) % 4)
            mask[row, place] = 1
            all_expected[row, place] = 0 if step is None else values[step]
    data = as_verl(batch.group[[of_episode[0] for of_episode in episodes]], mask)
    conversations = [[steps[step] for step in of_episode] for of_episode in episodes]
    assert {len(of_episode) for of_episode in episodes} >= {1, 2}
    found = advantages(data, conversations, "hgpo", config())
    np.testing.assert_allclose(found, all_expected, rtol=1e-6, atol=1e-6)


def test_a_row_a_conversation_of_one_step_each():
    """Nobody goes on after it: what is said then is none."""
    batch = random_batch(3, length=1)
    data = as_verl(batch.group, [[1, 1, 0, 0, 1, 1]] * len(batch))
    found = advantages(data, [[step] for step in described(batch)], "hgpo", config())
    values = estimate("hgpo", batch)
    np.testing.assert_allclose(found, values[:, None] * [1, 1, 0, 0, 0, 0], rtol=1e-6, atol=1e-6)
    assert np.abs(values).max() > 0.1


def test_rows_that_fill_the_batch_up_count_for_nothing():
    batch = random_batch(4)
    data, steps = row_a_step(batch)
    filled = DataProto.concat([data, as_verl([99, 99], np.zeros((2, 6), dtype=np.int64))])
    found = advantages(filled, [*steps, steps[0], steps[0]], "gigpo", config())
    np.testing.assert_array_equal(found[:-2], advantages(data, steps, "gigpo", config()))
    assert not found[-2:].any()


def test_settings_of_verl_are_the_options():
    batch = random_batch(5)
    data, steps = row_a_step(batch)
    settings = config(gamma=0.5, norm_adv_by_std_in_grpo=False)
    mask = data.batch["response_mask"].numpy()
    all_expected = estimate("hgpo", batch, gamma=0.5, norm="mean_norm")[:, None] * mask
    np.testing.assert_allclose(advantages(data, steps, "hgpo", settings), all_expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        advantages(data, steps, "hgpo"), estimate("hgpo", batch)[:, None] * mask, rtol=1e-6, atol=1e-6
    )


def test_an_episode_describes_its_steps():
    episode = SingleEpisode("hgpo_gym/SignpostMaze-v0", sections=1, split="all")
    episode.begin("red")
    for turn, action in enumerate(("fly", "walk on", "walk on", "open red door")):
        episode.turn = turn
        episode.act(action)
    steps = describe_steps("a", episode.steps(4), invalid_action_penalty=0.1)
    assert [step["reward"] for step in steps] == [0, 0, 0, 10]
    assert [step["penalty"] for step in steps] == [0.1, 0, 0, 0]
    assert all(
        step.keys() == {*FIELDS, "penalty", "action", "success", "final_keys"} and step["success"] for step in steps
    )
    assert [step["action"] == steps[1]["action"] for step in steps] == [False, True, True, False]
    found = advantages(as_verl([0] * 4, np.ones((4, 2))), [[step] for step in steps], "hgpo_gym.grpo", config())
    assert found.tolist() == pytest.approx(np.array([[9.9] * 2, *[[10.0] * 2] * 3]))  # alone: its own return


@pytest.mark.parametrize("name", ["rtmc", "crbc", "graft", "graphgpo", "g2po", "nested_bellman", "salt"])
def test_estimators_that_look_at_actions_successes_and_ends(name):
    """A lost episode that has earned something is no success, where that is said."""
    batch = random_batch()
    rng = np.random.default_rng(1)
    members = len(np.unique(batch.trajectory))
    output = replace(
        batch,
        action=rng.integers(3, size=len(batch)),
        success=(rng.random(members) < 0.5)[batch.trajectory],
        final_keys=rng.integers(1, 4, size=(members, 3))[batch.trajectory],
    )
    data, steps = row_a_step(output)
    found = advantages(data, steps, name)[:, 0]
    np.testing.assert_allclose(found, estimate(name, output), rtol=1e-5, atol=1e-5)
    if name not in ("rtmc", "salt"):
        assert not np.allclose(found, estimate(name, replace(output, success=None)), atol=1e-3)


def test_estimators_of_milestones_rewards_turns_and_entropy():
    """Columns that the agent loop or the trainer adds to the steps."""
    batch = random_batch()
    rng = np.random.default_rng(2)
    members = len(np.unique(batch.trajectory))
    batch = replace(
        batch,
        action=rng.integers(3, size=len(batch)),
        success=(rng.random(members) < 0.5)[batch.trajectory],
        extras={
            "milestone": rng.random(len(batch)) < 0.3,
            "reward_vector": rng.random((members, 2))[batch.trajectory],
            "turn_reward": rng.random(len(batch)),
            "tag": rng.integers(2, size=len(batch)),
            "tag_reward": rng.random(len(batch)),
            "entropy": rng.random(len(batch)),
            "agent": rng.integers(2, size=len(batch)),
        },
    )
    data, steps = row_a_step(batch)
    mask = data.batch["response_mask"].numpy()
    for name in ("beacon", "gdpo", "dvao", "turn_rewards", "rlvmr", "empg", "dr_mas"):
        all_expected = estimate(name, batch)
        assert np.abs(all_expected).max() > 0.1, name
        found = advantages(data, steps, f"hgpo_gym.{name}")
        np.testing.assert_allclose(found, all_expected[:, None] * mask, rtol=1e-5, atol=1e-6, err_msg=name)
    without = [[{name: value for name, value in step.items() if name != "milestone"}] for (step,) in steps]
    with pytest.raises(ValueError, match="'beacon' needs the column 'milestone'"):
        advantages(data, without, "hgpo_gym.beacon")


def test_what_is_missing_is_named():
    batch = random_batch()
    data, steps = row_a_step(batch)
    with pytest.raises(ValueError, match=r"adv_estimator=hgpo needs the steps .* trainer\.v1\.trainer_mode=steps_sync"):
        compute_advantage(data, "hgpo", config=config())
    for field in FIELDS:
        broken = [*steps[:2], [{name: value for name, value in steps[2][0].items() if name != field}], *steps[3:]]
        with pytest.raises(ValueError, match=f"Row 2: a step without '{field}'"):
            advantages(data, broken, "hgpo", config())
    some = [*steps[:2], [{**steps[2][0], "success": True}], *steps[3:]]
    with pytest.raises(ValueError, match=r"Row 0: a step without 'success'.* which others have"):
        advantages(data, some, "hgpo", config())
    with pytest.raises(ValueError, match="row_steps has 1 rows, the batch"):
        advantages(data, steps[:1], "hgpo", config())
    with pytest.raises(ValueError, match=r"Row 0 has 2 steps but 1 stretches"):
        advantages(as_verl([0], [[1, 1, 1]]), [described(batch)[:2]], "hgpo", config())
    with pytest.raises(ValueError, match="use_kl_in_reward=False"):
        advantages(data, steps, "hgpo", config(use_kl_in_reward=True))
    del data.non_tensor_batch["uid"]
    with pytest.raises(ValueError, match="'uid'"):
        advantages(data, steps, "hgpo", config())


def test_verl_finds_them_by_itself_and_the_example_runs():
    """At first nothing of ours is imported: verl's plugins are found by their entry points."""
    script = ROOT / "examples" / "verl_advantages.py"
    code = (
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn as find\n"
        "from verl.trainer.ppo.v1 import get_trainer_cls\n"
        "print(find('hgpo').args, find('gigpo').args, get_trainer_cls('steps_sync').__name__)\n"
        f"import runpy, sys\nsys.argv = ['']\nrunpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "('hgpo',) ('gigpo',) StepsSync" in done.stdout
    apart = float(done.stdout.split(" apart.")[0].split()[-1])
    assert apart < 1e-5
    assert "update 3: loss" in done.stdout


def test_responses_of_an_agent_loop_end_as_the_template_and_settings_say():
    tokenizer = chat_tokenizer("qwen", ["walk on"] * 3)
    requested = with_response_ends({"temperature": 1.0, "stop_token_ids": [7]}, tokenizer, stop=["</action>"])
    ends = sorted([7, *tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])])
    assert requested == {"temperature": 1.0, "stop": ["</action>"], "stop_token_ids": ends} | {
        "include_stop_str_in_output": True
    }
    with pytest.raises(ValueError, match=r"engine\.stop='</action>'"):
        with_response_ends({}, tokenizer, stop="</action>")
