"""Inspection: kept rollouts are what was trained on; the graph, the hierarchy and the advantages of a small group."""

import json
import shlex
import sys
from functools import partial

import numpy as np
import pytest

from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.analysis.inspection.graph import NOT_WON, WON, Edge, observation_graph, shortest_paths
from hgpo_gym.analysis.inspection.group import find_group, open_group
from hgpo_gym.analysis.inspection.hierarchy import levels_of
from hgpo_gym.cli.main import main
from hgpo_gym.rollouts import saved as kept_rollouts
from hgpo_gym.rollouts.rollout import EpisodeOutcome
from hgpo_gym.rollouts.saved import SavedRollout
from hgpo_gym.runs.directory import read_config, read_metrics
from tests.support import warm
from tests.support.packages import python
from tests.support.small_runs import train

HGPO = {"name": "hgpo", "gamma": 0.5, "norm": "mean_norm"}


def make_rollout(*groups):
    """A rollout from groups of episodes; an episode is whether it was won, and (observation, action) a step."""
    rows = [
        (group, (group, index), step, *pair, won)
        for group, episodes in enumerate(groups)
        for index, (won, *pairs) in enumerate(episodes)
        for step, pair in enumerate(pairs)
    ]
    last = {trajectory: step for _, trajectory, step, *_ in rows}
    batch = StepBatch.from_records(
        group=[row[0] for row in rows],
        trajectory=[row[1] for row in rows],
        step=[row[2] for row in rows],
        observation=[row[3] for row in rows],
        reward=[8.0 * (row[5] and row[2] == last[row[1]]) for row in rows],
        history_length=1,
    )
    ends = {(group, index): won for group, episodes in enumerate(groups) for index, (won, *_) in enumerate(episodes)}
    return SavedRollout(
        batch=batch,
        episodes=tuple(
            EpisodeOutcome(
                f"task {'abc'[group]}", "kind", won, 8.0 * won, last[group, index] + 1, last[group, index] + 1
            )
            for (group, index), won in ends.items()
        ),
        tasks=("Get out.",) * len(ends),
        observations=tuple(row[3] for row in rows),
        actions=tuple(row[4] for row in rows),
    )


@pytest.fixture
def group():
    """Three episodes through a hall that follows a red or a blue sign; the second group of its rollout."""
    rollout = make_rollout(
        [(True, ("elsewhere", "go"))],
        [
            (True, ("red sign", "on"), ("hall", "left")),
            (False, ("red sign", "on"), ("hall", "right"), ("red sign", "on")),
            (True, ("blue sign", "on"), ("hall", "left")),
        ],
    )
    return open_group(rollout, 2, HGPO)


def test_the_graph_counts_actions_and_averages_their_returns(group):
    graph = observation_graph(group)
    assert {node.observation: (node.number, node.visits) for node in graph.nodes.values()} == {
        "red sign": (1, 3),
        "blue sign": (2, 1),
        "hall": (3, 3),
    }
    assert set(graph.edges) == {
        Edge(1, "on", 3, 2, (4.0 + 0.0) / 2), Edge(1, "on", NOT_WON, 1, 0.0), Edge(2, "on", 3, 1, 4.0),
        Edge(3, "left", WON, 2, 8.0), Edge(3, "right", 1, 1, 0.0),
    }  # fmt: skip
    assert [edge.action for edge in graph.edges_from(3)] == ["left", "right"]
    assert {target: edge.source for target, edge in shortest_paths(graph).items()} == {3: 1}


def test_the_hierarchy_narrows_to_the_steps_with_the_same_history(group):
    row = group.row("1.2")
    same, history = levels_of(group, row)
    assert [group.name(member) for member in same.members] == ["1.2", "2.2", "3.2"]
    assert same.window == ("hall",)
    assert (same.mean, same.relative) == (pytest.approx(16 / 3), pytest.approx(8 - 16 / 3))
    assert [group.name(member) for member in history.members] == ["1.2", "2.2"]
    assert history.window == ("red sign", "hall")
    assert (history.mean, history.std, history.relative) == (4.0, 4.0, 4.0)
    first, too_early = levels_of(group, group.row("1.1"))
    assert [group.name(member) for member in first.members] == ["1.1", "2.1", "2.3"]
    assert len(too_early.members) == 0
    assert too_early.window == ()


def test_every_estimator_is_asked_as_in_training(group):
    """The run's options for its estimator, for the others their defaults at the run's discount, on the whole
    rollout."""
    batch = group.rollout.batch
    np.testing.assert_array_equal(group.advantages["hgpo"], estimate("hgpo", batch, gamma=0.5, norm="mean_norm"))
    np.testing.assert_array_equal(group.advantages["gigpo"], estimate("gigpo", batch, gamma=0.5))
    np.testing.assert_array_equal(group.advantages["grpo"], estimate("grpo", batch))
    assert group.options["gigpo"]["step_advantage_weight"] == 1.0
    row = group.row("1.2")
    by_hand = (1 * (8 - 16 / 3) + 2 * (8 - 4)) / 3
    assert group.advantages["hgpo"][row] == pytest.approx(by_hand, abs=1e-5)
    stacked = np.array([values[group.rows] for values in group.advantages.values()])
    assert np.ptp(stacked, axis=0).max() == np.ptp(
        [values[group.most_disputed()] for values in group.advantages.values()]
    )


def test_a_group_is_found_by_number_task_or_part_of_it():
    rollout = make_rollout(*[[(True, ("place", "go"))]] * 3)
    assert find_group(rollout, "2") == 2
    assert find_group(rollout, "task c") == 3
    assert find_group(rollout, "k b") == 2
    with pytest.raises(ValueError, match=r"Several groups fit the task 'task': 1 \(task a\), 2"):
        find_group(rollout, "task")
    with pytest.raises(ValueError, match=r"Unknown task 'tusk c'. Did you mean '3 \(task c\)'"):
        find_group(rollout, "tusk c")


def test_steps_are_named_by_episode_and_step(group):
    assert group.name(group.row("2.3")) == "2.3"
    with pytest.raises(ValueError, match=r"step '2': write episode\.step"):
        group.row("2")
    with pytest.raises(ValueError, match=r"step 4\.1: the group has the episodes 1 to 3"):
        group.row("4.1")
    with pytest.raises(ValueError, match=r"step 2\.4: episode 2 has the steps 1 to 3"):
        group.row("2.4")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four iterations of GiGPO, each rollout kept."""
    path = tmp_path_factory.mktemp("run") / "gigpo"
    train(path, "algo=gigpo", "algo.gamma=0.9")
    return path


def test_a_kept_rollout_is_the_one_that_was_trained_on(run):
    """Its advantages have the mean, spread and zeros that the run logged."""
    for line in read_metrics(run):
        rollout = kept_rollouts.load(run / "rollouts", line["iteration"])
        advantages = estimate("gigpo", rollout.batch, gamma=0.9)
        assert advantages.mean() == line["advantage_mean"]
        assert advantages.std() == line["advantage_std"]
        assert (advantages == 0).mean() == line["advantage_zero_share"]
        assert np.mean([episode.won for episode in rollout.episodes]) == line["success"]
        assert set(rollout.tasks) == {"Find the way through the castle to the garden."}
        assert {text for text, step in zip(rollout.observations, rollout.batch.step, strict=True) if step == 0} <= {
            f"You stand at a signpost. It says: take the {colour} door." for colour in ("red", "blue", "green")
        }
        assert set(rollout.actions) <= {"walk on", "go back", "open red door", "open blue door", "open green door"}


def test_steps_that_episodes_share_are_shown_as_they_are_trained_on(tmp_path):
    tree = ["sampler=tree", "rollout.group_size=6", "env.sections=1"]
    train(tmp_path, "algo=grpo", *tree, "trainer.iterations=1", "evaluation.every=0")
    rollout, (line,) = kept_rollouts.load(tmp_path / "rollouts", 1), read_metrics(tmp_path)
    group = open_group(rollout, 1, read_config(tmp_path)["algo"])
    values, distinct = group.advantages["grpo"], rollout.batch.distinct
    assert values[distinct].std() == line["advantage_std"] != estimate("grpo", rollout.batch)[distinct].std()
    # The levels of a step, each weighed as HGPO does, are its advantage.
    options = group.options["hgpo"]
    for row in group.rows:
        weights, relatives = [], []
        for level in levels_of(group, row):
            if len(level.members) > 1 and level.std > 1e-9:
                weights.append((level.level + 1) ** options["length_weight_alpha"])
                relatives.append(level.relative)
            assert row in level.members or not level.window
        expected = np.dot(weights, relatives) / (sum(weights) + 1e-6)
        assert group.advantages["hgpo"][row] == pytest.approx(expected, abs=1e-5)
    assert len(group.distinct) < len(group.rows)
    graph = observation_graph(group)
    assert sum(node.visits for node in graph.nodes.values()) == len(group.distinct)
    assert sum(edge.count for edge in graph.edges) == len(group.distinct)


def test_windows_of_a_team_go_back_by_turns(tmp_path):
    """Its planner speaks at every other one."""
    team = ["team=planner_actor", "team.every=2", "team.plans=[go,stay]"]
    train(tmp_path, "algo=hgpo", *team, "trainer.iterations=1", "evaluation.every=0")
    rollout = kept_rollouts.load(tmp_path / "rollouts", 1)
    group = open_group(rollout, 1, read_config(tmp_path)["algo"])
    batch, shown = rollout.batch, 0
    for row in group.rows:
        for level in levels_of(group, row):
            for member in level.members:  # compared with it, so that both have seen the same
                rows = np.flatnonzero(batch.trajectory == batch.trajectory[member])
                seen = {batch.extras["turn"][other]: rollout.observations[other] for other in rows}
                last = batch.extras["turn"][member]
                assert level.window == tuple(seen[turn] for turn in range(last - level.level, last + 1))
                shown += level.level > 0
    assert shown > 100


def test_rollouts_are_kept_as_often_as_asked_and_made_again_after_a_resume(tmp_path):
    settings = ["checkpoint.rollouts_every=2", "checkpoint.every=1"]
    train(tmp_path, *settings)
    assert kept_rollouts.saved_iterations(tmp_path / "rollouts") == [2, 4]
    with pytest.raises(FileNotFoundError, match=r"iteration 3 is not in .*: kept are 2, 4\. .*rollouts_every"):
        kept_rollouts.load(tmp_path / "rollouts", 3)
    kept_rollouts.forget_after(tmp_path / "rollouts", 3)
    assert kept_rollouts.saved_iterations(tmp_path / "rollouts") == [2]
    train(tmp_path / "none", "checkpoint.rollouts_every=0")
    with pytest.raises(FileNotFoundError, match="none is"):
        kept_rollouts.load(tmp_path / "none" / "rollouts", 1)


def test_the_command_lists_the_groups_then_shows_one(run, capsys, tmp_path, pictures):
    main(["inspect", str(run)])
    listed = capsys.readouterr().out
    rollout = kept_rollouts.load(run / "rollouts", 4)
    assert "gigpo, iteration 4" in listed
    assert rollout.episodes[0].task_id in listed
    page = tmp_path / "group.html"
    with pictures():
        main(["inspect", str(run), "--iteration", "2", "--task", "1", "--step", "3.2", "--html", str(page)])
    shown = capsys.readouterr().out
    group = open_group(kept_rollouts.load(run / "rollouts", 2), 1, {"name": "gigpo", "gamma": 0.9})
    row = group.row("3.2")
    assert f"Did: {group.rollout.actions[row]}" in shown
    assert "[1] You stand at a signpost." in shown
    with pytest.raises(SystemExit):
        main(["inspect", str(run), "--iteration", "2", "--task", "1", "--html", str(tmp_path / "no" / "group.html")])
    out, err = capsys.readouterr()
    assert "no/group.html: No such file or directory. Name a file in a folder that can be written." in err
    assert out == ""
    html = page.read_text()
    for values in group.advantages.values():
        advantage = f"{values[row]:+.3f}" if values[row] else "0"
        assert advantage in shown
        assert advantage in html
    assert "data:image/svg+xml;base64," in html
    assert html.count('<td class="text">3.') >= rollout.episodes[2].steps, "every step is in the page"


@pytest.mark.parametrize("width", [60, 100, 400])
def test_numbers_are_whole_in_a_narrow_terminal_and_what_is_left_out_is_named(width, run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    main(["inspect", str(run), "--task", "1", "--step", "1.1"])
    lines = capsys.readouterr().out.split("Its companions")[1].splitlines()
    assert max(map(len, lines)) <= width
    rule = next(index for index, line in enumerate(lines) if line.startswith("━"))
    shown = [title.strip() for title in lines[rule - 1].split("┃")][4:]
    left_out = (
        " ".join(" ".join(lines).split())
        .partition("characters a line (COLUMNS=300: more): ")[2]
        .strip(" .")
        .split(", ")
    )
    group = open_group(kept_rollouts.load(run / "rollouts", 4), 1, {"name": "gigpo", "gamma": 0.9})
    assert [*shown, *filter(None, left_out)] == list(group.advantages)
    assert shown[0] == "gigpo", "the run's estimator comes first"
    assert (shown == list(group.advantages)) == (width == 400)
    values = [f"{values[group.row('1.1')]:+.3f}" for values in group.advantages.values()]
    this = next(line for line in lines if line.startswith("1.1")).split("│")
    assert [cell.strip() for cell in this[4:]] == ["0" if float(text) == 0 else text for text in values][: len(shown)]


def test_a_run_with_a_custom_estimator_is_inspected_with_it(tmp_path):
    plugin = tmp_path / "my_centred_returns.py"
    plugin.write_text(
        "from hgpo_gym.advantages import register_estimator\n"
        "def centred(batch, *, gamma=0.95):\n"
        "    return batch.reward - batch.reward.mean()\n"
        "register_estimator('centred_in_a_test', centred)\n"
    )
    code = "import sys; from tests.support.small_runs import train; train(*sys.argv[1:])"
    forked = partial(python, interpreter=warm.python())
    trained = forked("-c", code, tmp_path / "run", f"plugins=[{plugin}]", "algo=centred_in_a_test")
    assert trained.returncode == 0, trained.stderr
    shown = ["-m", "hgpo_gym", "inspect", tmp_path / "run", "--task", "1"]
    refused = forked(*shown)
    assert refused.returncode == 2
    assert f"the estimator 'centred_in_a_test', which plugins=[{plugin}] brought" in refused.stderr
    assert "add --plugins FILE" in refused.stderr
    seen = forked(*shown, "--plugins", plugin)
    assert seen.returncode == 0, seen.stderr
    assert "centred_in_a_test" in seen.stdout


def test_a_run_records_its_command_and_versions(run):
    (launch,) = map(json.loads, (run / "launches.jsonl").read_text().splitlines())
    assert launch["command"] == shlex.join(sys.orig_argv)
    assert launch["versions"]["numpy"] == np.__version__
