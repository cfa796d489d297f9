"""BabyAI against recordings of BALROG's fork of minigrid, its bot, its splits and snapshots."""

import random

import pytest

from hgpo_gym.envs.registration import make
from tests.support import golden

pytest.importorskip("minigrid")

from minigrid.envs.babyai.core import roomgrid_level

from hgpo_gym.envs.babyai.levels import MIXED, REFUSED, level_names, make_start

ID = "hgpo_gym/BabyAI-v0"


def level_of(episode):
    kind = episode["kind"]
    name = episode["id"].removeprefix("BabyAI-").removesuffix("-v0")
    return f"mixed/{kind.replace(' ', '_')}" if kind else name


def begin(level, seed, tasks=2, **options):
    """An environment at the beginning of a task, its first observation and info."""
    env = make(ID, level=level, tasks=tasks, split="all", **options).unwrapped
    return env, *env.reset(seed=0, options={"task_id": f"{level}-{seed}"})


@pytest.mark.promise("BabyAI's missions, texts, rewards and ends are those recorded of BALROG's fork of minigrid.")
def test_every_recorded_episode_is_reproduced():
    episodes = golden.load("babyai")["episodes"]
    assert len(episodes) == 64
    for episode in episodes:
        env, text, info = begin(
            level_of(episode), episode["seed"], reward="discounted", level_limit=True, **episode["options"]
        )
        actual = [(text, 0.0)] + [env.step(action)[:2] for action in episode["actions"]]
        sentences = [", ".join(sentences) for sentences in episode["descriptions"]]
        assert info["task"] == episode["mission"]
        assert [text for text, _ in actual] == sentences, f"{level_of(episode)}-{episode['seed']}"
        assert [round(reward, 6) for _, reward in actual[1:]] == episode["rewards"]
        assert env._running != any(episode["ended"])


def test_balrogs_lines_are_the_things_alone():
    _, sentences, _ = begin("GoToLocal", 0)
    _, lines, _ = begin("GoToLocal", 0, style="balrog")
    assert lines == sentences.replace("You see ", "").replace(", ", "\n")


def test_the_bot_wins_every_kind_of_level_and_reaches_milestones():
    levels = [*MIXED, "PutNextLocal", "UnlockPickup", "SynthS5R2", "GoToSeqS5R2", "BlockedUnlockPickup"]
    reached = {}
    for level in levels:
        env, _, info = begin(level, 0, expert=True, milestones=True)
        reached[level] = []
        while env._running:
            action = info["expert_action"]
            *_, info = env.step(action)
            reached[level] += [action] * info["milestone"]
        assert info["won"], level
    assert reached["PutNextLocal"] == ["pick up", "drop"]
    assert reached["UnlockPickup"] == ["pick up", "toggle", "pick up"]
    assert len(reached["mixed/pick_up_seq_go_to"]) == 2


def test_descriptions_name_what_is_in_each_direction_and_what_is_carried():
    env, *_ = begin("PutNextLocal", 0, describe_actions=True)
    *_, info = env.step("go forward")
    described = dict(zip(info["admissible_actions"], info["action_descriptions"], strict=True))
    assert described == {
        "turn left": "yellow key",
        "go forward": "nothing, green ball, green key, purple box, purple key, yellow box",
        "turn right": "grey ball, red box",
        "pick up": "nothing",
        "drop": "nothing",
        "toggle": "nothing",
    }
    env.step("go forward")
    *_, info = env.step("pick up")
    assert {text.split(":")[0] for text in info["action_descriptions"]} == {"carrying green ball"}


def test_the_bot_gives_up_where_a_box_was_opened():
    env, _, info = begin("GoToLocal", 0, expert=True)
    level = env._level
    box = next(place for place, cell in enumerate(level.grid.grid) if cell and cell.type == "box")
    row, column = divmod(box, level.grid.width)
    level.agent_pos, level.agent_dir = (column - 1, row), 0
    env.step("drop")  # which does nothing, but shows the bot where it is
    *_, info = env.step("toggle")
    assert info["expert_action"] == ""
    assert env.step("turn left")[4]["expert_action"] == ""


def test_effective_actions_are_those_that_change_something():
    env, _, info = begin("UnlockPickup", 1, admissible="effective", describe_actions=True)
    generator = random.Random(0)
    for _ in range(40):
        level = env._level
        listed = info["admissible_actions"]
        assert len(info["action_descriptions"]) == len(listed)
        snapshot, before = env.snapshot(), state(level)
        for number, action in enumerate(("turn left", "turn right", "go forward", "pick up", "drop", "toggle")):
            env._level.step(number)
            assert (state(env._level) != before) == (action in listed), action
            env.restore(snapshot)
        *_, ended, _, info = env.step(generator.choice(listed))
        if ended:
            _, info = env.reset()


def state(level):
    return level.grid.encode().tolist(), list(map(int, level.agent_pos)), level.agent_dir, level.carrying


@pytest.mark.parametrize(
    ("held_out", "levels"), [("starts", ["GoToLocal", "GoToRedBallGrey"]), ("missions", "GoToLocal")]
)
def test_no_start_or_mission_is_in_both_splits(held_out, levels):
    seen = {}
    for split in ("train", "test"):
        env = make(ID, level=levels, tasks=40, split=split, held_out=held_out).unwrapped
        seen[split] = set()
        for task_id in env.task_ids:
            _, info = env.reset(options={"task_id": task_id})
            seen[split].add((info["task"], repr(state(env._level)) if held_out == "starts" else ""))
    assert min(map(len, seen.values())) > 5
    assert not seen["train"] & seen["test"]


def test_the_limit_of_the_level_ends_an_episode_that_is_not_won():
    env, *_ = begin("GoToObjS4", 0, level_limit=True)
    turns = [env.step("drop") for _ in range(16)]
    assert [turn[2] for turn in turns] == [False] * 15 + [True]
    assert not turns[-1][4]["won"]


def test_the_levels_are_minigrids_less_six_and_the_mixed_ones():
    assert len(level_names()) == 96 - len(REFUSED) + len(MIXED) == 95


def test_rejected_draws_are_not_printed(capsys, monkeypatch):
    make_start("PutNextLocal", 4, 8)
    assert capsys.readouterr().out == ""
    monkeypatch.delitem(vars(roomgrid_level), "print")
    make_start("PutNextLocal", 4, 8)
    assert "Sampling rejected" in capsys.readouterr().out
