"""Notes: written beside the action, shown in the next prompt, and compared by context keys."""

import asyncio
from contextlib import closing

import numpy as np
import pytest

from hgpo_gym.adapters.single_episode import SingleEpisode
from hgpo_gym.adapters.verl.episode import EpisodePlan, LocalEpisodes
from hgpo_gym.adapters.verl.loop_settings import LoopSettings, Source
from hgpo_gym.config.compose import load_run
from hgpo_gym.envs import make_vec
from hgpo_gym.memory import ContextWrapper, KeyFunction, PromptTemplate, make_memory
from hgpo_gym.memory.context import Written
from hgpo_gym.memory.notes import read_notes
from hgpo_gym.policies.base import Sampling
from hgpo_gym.policies.scripted import ExpertPolicy
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.rollout import StepText
from hgpo_gym.rollouts.transcripts import Transcript
from hgpo_gym.trainers.learners.validate import check_notes

FAR = {"sections": 2, "distance": 3, "expert": True}
"""A maze whose signposts are four observations before their halls."""


def make_env_with_notes(num_tasks=1, group_size=1, **options):
    vector = make_vec("hgpo_gym/SignpostMaze-v0", num_tasks=num_tasks, group_size=group_size, **FAR)
    return ContextWrapper(vector, "brief", memory="notes", **options)


@pytest.fixture
def far_maze():
    with closing(make_env_with_notes(2, 2, key="notes")) as env:
        yield env


def test_notes_are_read_apart_from_the_action():
    for response, expected in (
        ("<memory> red\n</memory>walk on", ("red", "walk on", True)),
        ("walk on", (None, "walk on", True)),
        ("<memory></memory>walk on", ("", "walk on", True)),
        ("<memory>red</memory><memory>blue</memory>go", ("blue", "<memory>red</memory>go", False)),
        ("<memory>red walk on", (None, "<memory>red walk on", False)),
        ("</memory>red<memory>", (None, "</memory>red<memory>", False)),
    ):
        assert read_notes(response) == expected
    instruct = PromptTemplate.named("instruct").with_notes("beside")
    response = "<think>The sign <action>lies</action>.</think><memory>x <action>a</action></memory><action>go</action>"
    assert instruct.read(response) == ("go", True)
    assert instruct.write_response("go", "red") == "<memory>red</memory><think></think><action>go</action>"


def test_a_prompt_shows_the_notes_and_the_present_observation_alone(far_maze):
    prompts, _ = far_maze.reset(seed=0)
    assert prompts[0].startswith("Notes: none\nYou stand at a signpost.")
    prompts, *_ = far_maze.step(["<memory>red {sign}</memory>walk on"] * 3 + ["walk on"])
    assert prompts[0] == "Notes: red {sign}\nYou are in a bare corridor.\n>"
    assert prompts[3] == "Notes: none\nYou are in a bare corridor.\n>"
    prompts, _, _, _, infos = far_maze.step(["walk on", "<memory>RED  {sign}</memory>walk on", "go back", "go back"])
    assert prompts[0] == "Notes: red {sign}\nYou are in a bare corridor.\n>"
    assert infos["action_valid"].tolist() == [True] * 4
    # What the agents believe is the same in three of them, wherever they are.
    assert len(np.unique(infos["context_keys"][:3, 0])) == 1
    assert infos["context_keys"][3, 0] != infos["context_keys"][0, 0]


def test_an_expert_with_notes_wins_where_no_window_of_two_shows_the_sign(far_maze):
    tasks = far_maze.unwrapped.task_ids[:2]
    rollout = collect(far_maze, ExpertPolicy(), Sampling(), task_ids=tasks, seeds=[(0, 0), (0, 1)])
    assert rollout.success == 1.0
    first = [step for step, row in zip(rollout.steps, rollout.batch.trajectory, strict=True) if row == 0]
    signs = tasks[0].split("-")
    assert [step.notes for step in first] == ["", *[signs[0]] * 5, *[signs[1]] * 4]
    assert [step.prompt.startswith(f"Notes: {step.notes or 'none'}\n") for step in first] == [True] * 10
    assert first[0].response == f"<memory>{signs[0]}</memory>walk on"
    assert rollout.batch.extras["notes_length"].max() == max(map(len, "-".join(tasks).split("-")))
    groups, notes = rollout.batch.group, [step.notes for step in rollout.steps]
    keys = {
        (group, note): key for group, note, key in zip(groups, notes, rollout.batch.context_keys[:, 0], strict=True)
    }
    assert [keys[pair] for pair in zip(groups, notes, strict=True)] == rollout.batch.context_keys[:, 0].tolist()
    assert len(set(keys.values())) == len(set(notes))


def test_an_episode_that_begins_in_the_middle_of_another_has_its_notes(far_maze):
    tasks = far_maze.unwrapped.task_ids[:2]
    collect(far_maze, ExpertPolicy(), Sampling(), task_ids=tasks, seeds=[(0, 0), (0, 1)])
    start = far_maze.unwrapped.starts[0]
    texts = [Written(["<memory>red</memory>walk on"]), Written(["walk on"])]
    begun = far_maze.begin_at({0: (start, ["walk on"] * 2, 5), 1: (start, ["walk on"] * 2, 6)}, {0: texts})
    memory = make_memory("notes", key="notes")
    for text in texts:
        memory.observe("")
        memory.record("walk on", text)
    keys = [begun[row].steps[-1][-1]["context_keys"].tolist() for row in (0, 1)]
    assert keys[0] == memory.observe("").keys.tolist()
    assert keys[0] != keys[1]


def test_a_single_episode_shows_what_its_memory_does():
    options = {"memory": "notes", "key": "notes", "template": "brief", "distance": 3}
    episode = SingleEpisode("hgpo_gym/SignpostMaze-v0", **options)
    episode.begin("red-red-blue")
    text = episode.act("<memory>red</memory>walk on")
    assert text.startswith("You are in a bare corridor.")
    assert episode.prompt == "Notes: red\nYou are in a bare corridor.\n>"
    keys = episode.context_keys
    episode.act("walk on")
    assert episode.context_keys[0] == keys[0]


def test_compaction_replaces_the_history_by_notes_of_the_role_memory():
    with closing(make_env_with_notes(2, 2, every=3)) as env:
        tasks = env.unwrapped.task_ids[:2]
        rollout = collect(env, ExpertPolicy(), Sampling(), task_ids=tasks, seeds=[(0, 0), (0, 1)])
    batch = rollout.batch
    rows = np.flatnonzero(batch.trajectory == 0)
    shown = [(rollout.steps[row].prompt.count("> "), int(batch.extras["agent"][row])) for row in rows]
    # Past steps that the prompt shows, and who responds: notes after three steps, then the action without a history.
    assert shown == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
        (0, 0),
    ]
    sign = tasks[0].split("-")[0]
    notes = rollout.steps[rows[3]]
    assert notes.prompt.endswith("You are in a bare corridor.\n>\nNotes:")
    assert notes.prompt.startswith("Notes: none\nYou stand at a signpost.")
    assert notes.response == f"<memory>{sign}</memory>"
    assert rollout.steps[rows[4]].prompt == f"Notes: {sign}\nYou are in a bare corridor.\n>"
    assert rollout.success == 1.0
    # Notes are compared with notes at the same key: both episodes of the group are in the same corridor.
    by_notes = np.flatnonzero((batch.extras["agent"] == 1) & (batch.step == 3) & (batch.group == 0))
    assert len(by_notes) == 2
    assert len(set(batch.context_keys[by_notes, 0])) == 1
    assert not set(batch.context_keys[by_notes, 0]) & set(batch.context_keys[batch.extras["agent"] == 0, 0])


def test_the_episodes_of_verls_agent_loop_are_those_of_the_trainer():
    memory = {"name": "notes", "every": 3, "history_length": 1, "key": "observation+notes"}
    maze = {"id": "hgpo_gym/SignpostMaze-v0", **FAR}
    settings = LoopSettings.parse({"envs": {"maze": maze}, "memory": memory, "prompt": "brief"})

    async def ask(request):
        return ExpertPolicy().generate([request], Sampling())[0]

    env = make_env_with_notes(every=3, history_length=1, key="observation+notes")
    with closing(env):
        task = env.unwrapped.task_ids[1]
        rollout = collect(env, ExpertPolicy(), Sampling(), task_ids=[task], seeds=[(0, 0)])
    plan = EpisodePlan(Source("maze", None, None), task, (0, 0), 0)
    player = asyncio.run(LocalEpisodes(settings).play(plan, lambda _attempt: ask))
    assert [row.text for row in player.rows] == list(rollout.steps)
    np.testing.assert_array_equal([row.keys for row in player.rows], rollout.batch.context_keys)
    assert player.outcome.won


def test_notes_are_due_at_a_number_of_tokens():
    memory, due = make_memory("notes", at_tokens=50), []
    for tokens in (20, 49, 50, 30, 60):
        due.append(memory.observe("a hall").due)
        texts = ["<memory>hall</memory>", "go"] if due[-1] else ["go"]
        memory.record("go", Written(texts, tokens))
    due.append(memory.observe("a hall").due)
    assert due == [False, False, False, True, False, True]
    assert memory.notes == "hall"


def test_what_is_imitated_has_the_notes_of_the_role_memory():
    step = StepText("a task", "a hall", ("go",), "go", "go", expert_notes="red")
    template = PromptTemplate.named("brief")
    requests = Transcript("one", True, (step,) * 5).requests(make_memory("notes", every=2), template)
    responses = [(request.prompt.count("> "), response) for request, response in requests]
    notes = "<memory>red</memory>"
    assert responses == [(0, "go"), (1, "go"), (2, notes), (0, "go"), (1, "go"), (2, notes), (0, "go")]
    beside = Transcript("one", True, (step,) * 2).requests(make_memory("notes"), template)
    assert [response for _, response in beside] == [f"{notes}go"] * 2


def test_a_key_function_of_ones_own_sees_observation_actions_and_notes():
    seen = []

    def canonical(observation, admissible, notes):
        seen.append((observation, admissible, notes))
        return notes[:1]

    memory = make_memory("notes", key=KeyFunction(canonical, with_notes=True, with_action=True))
    memory.observe("a hall", ("go",))
    memory.record("go", Written(["<memory>red</memory>go"]))
    memory.observe("a door", ())
    assert seen == [("a hall", ("go",), ""), ("a door", (), "red")]


def test_settings_that_do_not_go_with_notes_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"memory.key=notes: this form of memory has no notes. Choose memory=notes"):
        load_run(["memory.key=notes"])
    for settings, message in (
        (
            ["engine.constrain=admissible"],
            "Set engine.constrain=none",
        ),
        (["model=tabular"], "model=tabular writes no notes"),
        (["memory.every=2"], "Set engine.constrain=none"),
        (["memory.every=0"], "memory.every=0: choose 1 or more"),
        (["prompt=plan", "engine.constrain=none"], "Choose another prompt"),
    ):
        with pytest.raises(ValueError, match=message):
            check_notes(load_run(["memory=notes", *settings]))
