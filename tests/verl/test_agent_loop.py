"""Episodes in verl's agent loop are those of this package's own trainer: the same tasks, prompts, tokens and steps.

A server in this process answers requests; everything else is verl's and ours. Ray is not needed.
"""

import asyncio

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from hgpo_gym.adapters.verl import batch_of_rows
from hgpo_gym.adapters.verl.agent_loop import EpisodeLoop
from hgpo_gym.adapters.verl.dataset import TaskDataset
from hgpo_gym.adapters.verl.episode import EpisodeFailedError
from hgpo_gym.adapters.verl.metrics import episode_metrics, outcomes_of, validation_metrics
from hgpo_gym.adapters.verl.record import Row, rows_of_output, with_similarity
from hgpo_gym.adapters.verl.steps import OPTIONAL_FIELDS
from hgpo_gym.envs import make, make_vec
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import Sampling
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.samplers.base import tasks_in_order
from hgpo_gym.trainers.settings import MemorySettings
from tests.support import ROOT
from tests.support.breaking import BREAKING
from tests.support.chat_models import chat_model

MAZE = {"id": "hgpo_gym/SignpostMaze-v0", "sections": 1, "distance": 0, "slip": 0.3, "max_episode_steps": 4}
GROUPS, MEMBERS, LONGEST_PROMPT, LONGEST_RESPONSE = 2, 2, 160, 6


def config_of(env=MAZE, **settings):
    """The parts of verl's configuration that a loop and a dataset read."""
    loop = {"envs": {"maze": env}, "seed": 3, "prompt": "brief", "invalid_action_penalty": 0.1, "iterations": 4}
    return OmegaConf.create(
        {
            "data": {
                "hgpo_gym": {**loop, **settings},
                "train_batch_size": GROUPS,
                "shuffle": False,
                "apply_chat_template_kwargs": {},
            },
            "actor_rollout_ref": {
                "model": {"path": str(ROOT / "tests")},  # a folder without a model: no hub is asked for one
                "rollout": {"name": "tiny", "prompt_length": LONGEST_PROMPT, "response_length": LONGEST_RESPONSE},
            },
        }
    )


class Server:
    """Answers with the likeliest tokens of a model, as verl's client for its servers does."""

    def __init__(self, model):
        self.model, self.requests = model, []

    @torch.no_grad()
    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.requests.append((request_id, len(prompt_ids)))
        ids = list(prompt_ids)
        while len(ids) - len(prompt_ids) < LONGEST_RESPONSE:
            ids.append(int(self.model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] in sampling_params["stop_token_ids"]:
                break
        tokens = ids[len(prompt_ids) :]
        versions = {"global_steps": 0, "min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=tokens, log_probs=[-1.0] * len(tokens), extra_fields=versions)


@pytest.fixture(scope="module")
def model():
    words = ["walk on", "go back", "open red door", "open blue door", "You stand before a signpost"]
    return chat_model("qwen", words * 3, tags=())


def play(model, config, row, sessions):
    """The outputs of each session of a row, and the server."""
    network, tokenizer = model
    server = Server(network.eval())
    common = {"trainer_config": DictConfigWrap(config), "server_manager": server, "tokenizer": tokenizer}
    more = {"processor": None, "dataset_cls": TaskDataset, "data_config": DictConfigWrap(config.data)}

    async def all_sessions():
        loops = [EpisodeLoop(**common, **more) for _ in range(sessions)]
        sampling = {"temperature": 0.0}
        return await asyncio.gather(
            *(
                loop.run(sampling, **row, uid="u", session_id=session, global_steps=1)
                for session, loop in enumerate(loops)
            )
        )

    return asyncio.run(all_sessions()), server


def rows_of(config, files="maze:train*1"):
    return TaskDataset(files, config=config.data)


@pytest.mark.parametrize("similarity", [None, 0.7])
@pytest.mark.promise("verl's agent loop plays the episodes of our own trainer: tasks, chance, tokens, steps.")
def test_the_episodes_are_those_of_our_own_collector(model, similarity):
    memory = {"window": 2, "history_length": 2, "key": "observation", "similarity": similarity}
    config, (network, tokenizer) = config_of(memory=memory, texts=similarity is not None), model
    dataset = rows_of(config)
    iteration = 1
    rows = [dataset[iteration * GROUPS + group] for group in range(GROUPS)]
    played = [play(model, config, row, MEMBERS)[0] for row in rows]

    options = {name: value for name, value in MAZE.items() if name != "id"}
    vector = make_vec(MAZE["id"], num_tasks=GROUPS, group_size=MEMBERS, split="train", **options)
    env = ContextWrapper(vector, "brief", similarity=similarity)
    tasks = tasks_in_order(env.unwrapped.task_ids, 3, iteration, GROUPS)
    assert [row["task_id"] for row in rows] == tasks
    policy = LanguageModelPolicy(network, tokenizer, max_prompt_tokens=LONGEST_PROMPT, constrain="none")
    rollout = collect(
        env,
        policy,
        Sampling(temperature=0.0, max_new_tokens=LONGEST_RESPONSE),
        task_ids=tasks,
        seeds=[(RandomStream.ROLLOUT, 3, iteration, group) for group in range(GROUPS)],
        invalid_action_penalty=0.1,
    )
    env.close()

    outputs = [(group, output) for group, sessions in enumerate(played) for session in sessions for output in session]
    steps = [output.extra_fields["steps"] for _, output in outputs]
    # Sessions have equal names in the two groups here; verl's uid tells them apart.
    steps = [
        [{**step, "trajectory": f"{group}{step['trajectory']}"} for step in of_row]
        for (group, _), of_row in zip(outputs, steps, strict=True)
    ]
    rows = [Row(str(group), {"steps": of_row}, (), ()) for (group, _), of_row in zip(outputs, steps, strict=True)]
    rows = with_similarity(rows, MemorySettings(**memory))
    batch = batch_of_rows([row.fields["steps"] for row in rows], [row.uid for row in rows], range(len(rows)))
    order = rollout.batch.in_order
    assert len(batch) == len(order) > GROUPS * MEMBERS
    distinct = len(np.unique(batch.context_keys[:, 0]))
    assert distinct > 1 if similarity is None else distinct < len({step[0]["context_keys"][0] for step in steps})
    for name in ("group", "trajectory", "step", "reward", "penalty", "context_keys", "action", "success", "final_keys"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(rollout.batch, name)[order], err_msg=name)
    for name in ("agent", "truncated"):
        np.testing.assert_array_equal(batch.extras[name], rollout.batch.extras[name][order], err_msg=name)
    for (_, output), row in zip(outputs, order, strict=True):
        assert output.prompt_ids == rollout.tokens[row].prompt_ids.tolist()
        assert output.response_ids == rollout.tokens[row].token_ids.tolist()
        assert output.response_mask == [1] * len(output.response_ids)


def test_an_output_has_what_verl_reads(model):
    config = config_of(rewards=["success", "validity"])
    row = rows_of(config)[0]
    (outputs, _), server = play(model, config, row, 2)
    assert len({request for request, _ in server.requests}) == 2  # one id an episode
    for output in outputs:
        assert {"min_global_steps", "max_global_steps", "reward_extra_info"} <= output.extra_fields.keys()
        assert output.response_logprobs == [-1.0] * len(output.response_ids)
        (step,) = output.extra_fields["steps"]
        assert step.keys() <= {"trajectory", "step", "reward", "context_keys", *OPTIONAL_FIELDS}
        assert step["reward_vector"] == [0.0, output.extra_fields["episode"]["valid_steps"] / len(outputs)]
    metrics = episode_metrics([output.extra_fields for output in outputs])
    assert metrics["episode/length"] == len(outputs) == 4
    assert metrics["episode/success"] == 0
    assert metrics["episode/groups_without_variance"] == 1


def test_a_conversation_is_one_output(model):
    config = config_of(memory={"name": "conversation", "history_length": 2, "key": "observation"}, run_dir="unused")
    OmegaConf.update(config, "actor_rollout_ref.rollout.prompt_length", 1000)
    (turns,), _ = play(model, config, rows_of(config)[0], 1)
    OmegaConf.update(config, "data.hgpo_gym.rows", "episode", force_add=True)
    ((whole,),), _ = play(model, config, rows_of(config)[0], 1)
    assert len(turns) == 4
    assert whole.prompt_ids == turns[0].prompt_ids
    assert whole.prompt_ids + whole.response_ids == turns[-1].prompt_ids + turns[-1].response_ids
    assert sum(whole.response_mask) == sum(len(turn.response_ids) for turn in turns) < len(whole.response_mask)
    rows = rows_of_output("u", whole.extra_fields, whole.prompt_ids, whole.response_ids, whole.response_mask)
    found = [(row.prompt_ids, row.response_ids, row.fields["text"]["action"]) for row in rows]
    assert found == [(turn.prompt_ids, turn.response_ids, turn.extra_fields["text"][0]["action"]) for turn in turns]
    keys = [step["context_keys"] for step in whole.extra_fields["steps"]]
    assert keys == [turn.extra_fields["steps"][0]["context_keys"] for turn in turns]


def test_a_prompt_that_is_too_long_loses_its_oldest_steps(model):
    long = config_of(memory={"window": None, "history_length": 1, "key": "observation"})
    row = rows_of(long)[0]
    (outputs,), _ = play(model, long, row, 1)
    short = OmegaConf.merge(long, {"actor_rollout_ref": {"rollout": {"prompt_length": len(outputs[0].prompt_ids) + 4}}})
    (cut,), _ = play(model, short, row, 1)
    assert len(outputs[-1].prompt_ids) > len(cut[-1].prompt_ids)
    assert [output.extra_fields["prompt_cut"] for output in cut] == [False, True, True, True]
    assert cut[0].prompt_ids == outputs[0].prompt_ids


def test_an_environment_that_fails_is_named(model, tmp_path):
    maze = {**MAZE, "id": BREAKING, "folder": str(tmp_path), "broken": "red"}
    config = config_of(maze, max_retries=1)
    rows = {row["task_id"]: row for row in (rows_of(config, ["maze:all"])[index] for index in range(3))}
    with pytest.raises(EpisodeFailedError, match=r"maze_all, task 'red'.* 2 attempts.*ConnectionResetError: the back"):
        play(model, config, rows["red"], 1)
    played = [play(model, config, {**rows[task], "validates": True}, 1)[0][0] for task in ("red", "blue")]
    assert played[0][0].response_mask == [0]
    infos = [{"reward": 0.0, **outputs[-1].extra_fields["reward_extra_info"]} for outputs in played]
    outcomes = outcomes_of({name: [info[name] for info in infos] for name in infos[0]})
    metrics = validation_metrics(outcomes, {"maze_all": 2}, 0.5)
    assert metrics["val/maze_all/failed"] == 1
    assert metrics["val/maze_all/length"] == 2  # of 4 steps in two episodes
    with pytest.raises(RuntimeError, match=r"maze_all lost 1 of 2 episodes.*max_failed=0\.4.*the backend hung up"):
        validation_metrics(outcomes, {"maze_all": 2}, 0.4)
    with pytest.raises(RuntimeError, match="maze_other lost 3 of 3 episodes"):
        validation_metrics(outcomes, {"maze_other": 3}, 0.5)


def test_an_environment_that_fails_once_plays_on(model, tmp_path):
    maze = {**MAZE, "id": BREAKING, "folder": str(tmp_path), "once": True}
    (outputs,), _ = play(model, config_of(maze), rows_of(config_of(maze))[0], 1)
    assert [output.extra_fields["steps"][0]["step"] for output in outputs] == [0, 1, 2, 3]


def test_a_sampler_by_stages_orders_the_tasks():
    """Those of the first iterations are the ones that the expert solves within 8 steps."""
    household = {"id": "hgpo_gym/ALFWorld-v0", "max_episode_steps": 20}
    sampler = {"name": "stages", "stages": [[8, 3], [None, None]]}
    config = config_of(household, sampler=sampler, iterations=5, train_tasks=16)
    dataset = rows_of(config, "maze:generated*1")
    assert len(dataset) == 5 * GROUPS

    def expert_length(task_id):
        env = make(household["id"], split="generated", max_episode_steps=20, expert=True)
        _, info = env.reset(seed=0, options={"task_id": task_id})
        over, steps = False, 0
        while not over:
            *_, terminated, truncated, info = env.step(info["expert_action"])
            over, steps = terminated or truncated, steps + 1
        return steps

    lengths = [expert_length(dataset[index]["task_id"]) for index in range(5 * GROUPS)]
    assert max(lengths[: 3 * GROUPS]) <= 8 < max(lengths)
    OmegaConf.update(config, "data.hgpo_gym.envs.long", MAZE, force_add=True)
    with pytest.raises(ValueError, match=r"sampler=stages chooses from one source, and data\.train_files has 2"):
        rows_of(config, ["maze:generated*1", "long:train*2"])


def test_several_environments_by_weight():
    config = config_of(iterations=30)
    OmegaConf.update(config, "data.hgpo_gym.envs.long", {**MAZE, "sections": 2}, force_add=True)
    dataset = rows_of(config, ["maze:train*1", "long:train*2"])
    assert len(dataset) == 60
    sources = [dataset[index]["data_source"] for index in range(60)]
    assert sources.count("long_train") == 40
    assert max(abs(sources[:n].count("long_train") - 2 * n / 3) for n in range(61)) < 1
    maze = [dataset[index]["task_id"] for index in range(60) if dataset[index]["env"] == "maze"]
    alone = rows_of(config_of(iterations=10), "maze:train*1")
    assert maze == [alone[index]["task_id"] for index in range(20)]


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        ("mase:train", {}, r"Unknown environment in data\.train_files or data\.val_files 'mase'.*maze"),
        ("maze:train*0", {}, r"'maze:train\*0': the weight after \* must be a number above 0"),
        (["maze:train", "maze:test*1"], {}, "give a weight .* to all of them, or to none"),
        ("maze:train*1", {"iterations": None}, r"data\.hgpo_gym\.iterations is not set"),
        ("maze:train", {"promt": "brief"}, r"Unknown setting 'data\.hgpo_gym\.promt'.*data\.hgpo_gym\.prompt"),
        ("maze:nowhere", {}, "nowhere"),
    ],
)
def test_wrong_data_is_named(files, settings, message):
    with pytest.raises(ValueError, match=message):
        rows_of(config_of(**settings), files)
