"""The sections of a page about a group."""

import json
from math import isnan

import numpy as np

from hgpo_gym.analysis.inspection.drawing import draw_graph
from hgpo_gym.analysis.inspection.graph import END_NAMES, Edge, Graph, observation_graph, shortest_paths
from hgpo_gym.analysis.inspection.group import Group, group_task_ids
from hgpo_gym.analysis.inspection.hierarchy import KeyLevel, levels_of
from hgpo_gym.analysis.report.blocks import Block, Column, Items, Outline, Paragraph, Picture, Section, Table, Value
from hgpo_gym.analysis.transcripts import conversation, exchanged
from hgpo_gym.plain_text import counted
from hgpo_gym.rollouts.saved import SavedRollout

LINE = 90
"""Characters of an observation that has one line."""
NO_ACTION = "(no action)"


def all_groups(rollout: SavedRollout) -> Section:
    """Return a table of the groups of an iteration, to choose one from."""
    rows: list[tuple[Value, ...]] = []
    for number, task in group_task_ids(rollout).items():
        in_group = rollout.batch.group == number - 1
        episodes = [rollout.episodes[index] for index in np.unique(rollout.batch.trajectory[in_group])]
        won = sum(episode.won for episode in episodes)
        steps = [row for row in rollout.batch.distinct_rows if in_group[row]]
        without_action = sum(not rollout.actions[row] for row in steps)
        rows.append((number, task, episodes[0].task_type, f"{won} of {len(episodes)}", len(steps), without_action))
    columns = (
        Column("group", "whole"),
        Column("task"),
        Column("type"),
        Column("episodes won"),
        Column("steps", "whole"),
        Column("without an action", "whole"),
    )
    return Section("Groups", [Table("groups", "Choose one by its number or its task: --task.", columns, tuple(rows))])


def group_sections(group: Group, row: int, compared_by: str) -> list[Section]:
    """Return the sections of a group and of one of its steps.

    Args:
        group: the group.
        row: the row of the step in the batch.
        compared_by: the run's memory.key.
    """
    graph = observation_graph(group)
    return [
        _episodes(group),
        _graph(group, graph),
        _step(group, row, compared_by),
        _options(group),
        _every_step(group, graph),
        *_conversations(group),
        _observations(graph),
    ]


def _episodes(group: Group) -> Section:
    rollout = group.rollout
    trajectories = np.unique(rollout.batch.trajectory[group.rows])
    rows = tuple(
        (number, "won" if episode.won else "not won", episode.steps, episode.episode_return)
        for number, episode in enumerate((rollout.episodes[index] for index in trajectories), start=1)
    )
    columns = (Column("episode"), Column("result"), Column("steps", "whole"), Column("return", "number"))
    return Section(
        "Episodes",
        [
            Paragraph(f"Task: {_one_line(rollout.tasks[trajectories[0]], 1000)}"),
            Table("episodes", "The episodes of the group: the same task from the same state.", columns, rows),
        ],
    )


def _graph(group: Group, graph: Graph) -> Section:
    start = graph.nodes[1]
    tree = Outline(f"[1] {_one_line(start.observation)} ({counted(start.visits, 'step')})", _branches(graph, 1))
    return Section(
        "Observations and actions",
        [
            Picture(
                "graph",
                "The episodes as one graph. Circles are observations, from the top in the order that they were first "
                "seen in; arrows are actions, thick where frequent, coloured by their mean discounted return.",
                draw_graph(graph),
            ),
            Paragraph(
                "The same as a tree: each action with how often it was taken, its mean return "
                f"(discount {group.gamma:g}) and the observation it led to."
            ),
            tree,
        ],
    )


def _branches(graph: Graph, number: int) -> tuple[Outline, ...]:
    """Return the actions at an observation; later observations are listed under the shortest path to them."""
    paths = shortest_paths(graph)

    def branch(edge: Edge) -> Outline:
        action = f"{edge.action or NO_ACTION} ({counted(edge.count, 'time')}, return {edge.mean_return:.2f}) → "
        if edge.target in END_NAMES:
            return Outline(action + END_NAMES[edge.target])
        node = graph.nodes[edge.target]
        if paths.get(edge.target) is not edge:
            return Outline(f"{action}[{node.number}]")
        text = f"{action}[{node.number}] {_one_line(node.observation)} ({counted(node.visits, 'step')})"
        return Outline(text, _branches(graph, node.number))

    return tuple(branch(edge) for edge in graph.edges_from(number))


def _step(group: Group, row: int, compared_by: str) -> Section:
    rollout = group.rollout
    levels = levels_of(group, row)
    outcome = "won" if rollout.episodes[rollout.batch.trajectory[row]].won else "did not win"
    return Section(
        f"Step {group.name(row)} in the hierarchy of groups",
        [
            Items(
                (
                    f"Saw: {_one_line(rollout.observations[row], 1000)}",
                    *(f"Notes: {_one_line(notes, 1000)}" for notes in rollout.notes[row : row + 1]),
                    f"Did: {rollout.actions[row] or NO_ACTION}",
                    f"The episode {outcome}; the step's return, discounted by {group.gamma:g}, is "
                    f"{group.returns[row]:.3g}.",
                )
            ),
            *_prompt_and_response(group, row),
            _levels_table(levels, compared_by),
            _estimators_table(group, row),
            _members_table(group, row, levels),
        ],
    )


def _prompt_and_response(group: Group, row: int) -> list[Block]:
    """Return the step's prompt and raw response, if they were saved."""
    rollout = group.rollout
    episode, step = int(rollout.batch.trajectory[row]), int(rollout.batch.step[row])
    if episode >= len(rollout.conversations):
        saved_episodes = len(rollout.conversations)
        return [
            Paragraph(
                f"Its prompt and raw response were not kept: checkpoint.transcripts kept {saved_episodes} episodes."
            )
        ]
    return exchanged(rollout.conversations[episode].exchanges[step], group.name(row))


def _conversations(group: Group) -> list[Section]:
    """Return all saved prompts and responses of the episodes of the group."""
    first, batch = group.first_trajectory, group.rollout.batch
    last = int(batch.trajectory[group.rows].max())
    saved = group.rollout.conversations[first : last + 1]
    return [conversation(episode, number) for number, episode in enumerate(saved, start=1)]


def _levels_table(levels: list[KeyLevel], compared_by: str) -> Table:
    rows = tuple(
        (
            level.level,
            _one_line(level.window[0]) if level.window else "the episode had not so many observations yet",
            len(level.members),
            *(None if isnan(value) else value for value in (level.mean, level.std, level.relative)),
        )
        for level in levels
    )
    columns = (
        Column("level", "whole"),
        Column("also shared, so many steps before"),
        Column("steps", "whole"),
        Column("mean return", "number"),
        Column("standard deviation", "number"),
        Column("relative", "signed"),
    )
    caption = (
        "The sets of steps that share their observation with it, and at each level one more observation before "
        f"(memory.key={compared_by}). Relative: the step's return against the set's, as HGPO takes it; 0 where all "
        "returns are equal."
    )
    return Table("levels", caption, columns, rows)


def _members_table(group: Group, row: int, levels: list[KeyLevel]) -> Table:
    depth = {int(member): level.level for level in levels for member in level.members}
    ordered = sorted(depth, key=lambda member: (member != row, -depth[member], _place(group, member)))
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            group.name(member) + (" (this)" if member == row else ""),
            "●" * (depth[member] + 1),
            group.rollout.actions[member],
            float(group.returns[member]),
            *(float(values[member]) for values in group.advantages.values()),
        )
        for member in ordered
    )
    columns = (
        Column("step"),
        Column(f"levels 0 to {len(levels) - 1}"),
        Column("action"),
        Column("return", "number"),
        *(Column(name, "signed") for name in group.advantages),
    )
    caption = (
        "Its companions: the steps of the group that saw the same. A dot for each level that the shared history "
        "reaches, the return, and every estimator's advantage."
    )
    return Table("members", caption, columns, rows)


def _estimators_table(group: Group, row: int) -> Table:
    rows = tuple(
        (
            name,
            float(values[row]),
            float(values[group.distinct].mean()),
            float(values[group.distinct].std()),
            float((values[group.distinct] == 0).mean()),
        )
        for name, values in group.advantages.items()
    )
    columns = (
        Column("estimator"),
        Column("this step", "signed"),
        Column("mean in the group", "signed"),
        Column("standard deviation", "number"),
        Column("without signal", "share"),
    )
    caption = "Each estimator's advantage of this step, beside its advantages in the whole group."
    return Table("estimators", caption, columns, rows)


def _options(group: Group) -> Section:
    lines = tuple(
        f"{name}: " + ", ".join(f"{key}={json.dumps(value)}" for key, value in options.items())
        for name, options in group.options.items()
        if options
    )
    return Section("Options of the estimators", [Items(lines)], folded=True)


def _every_step(group: Group, graph: Graph) -> Section:
    number_of = {node.observation: node.number for node in graph.nodes.values()}
    rollout = group.rollout
    rows = tuple(
        (
            group.name(row),
            f"[{number_of[rollout.observations[row]]}]",
            rollout.actions[row],
            *map(_one_line, rollout.notes[row : row + 1]),
            float(group.returns[row]),
            *(float(values[row]) for values in group.advantages.values()),
        )
        for row in sorted(group.rows, key=lambda row: _place(group, row))
    )
    columns = (
        Column("step"),
        Column("observation"),
        Column("action"),
        *((Column("notes before"),) if rollout.notes else ()),
        Column("return", "number"),
        *(Column(name, "signed") for name in group.advantages),
    )
    caption = "All steps of the group. Look at another one by --step."
    return Section("Every step", [Table("steps", caption, columns, rows)], folded=True)


def _observations(graph: Graph) -> Section:
    rows = tuple(
        (f"[{node.number}]", node.visits, _one_line(node.observation, 10_000)) for node in graph.nodes.values()
    )
    columns = (Column("number"), Column("steps", "whole"), Column("observation", "prose"))
    caption = "The observations in full, and how many steps began at each."
    return Section("Every observation", [Table("observations", caption, columns, rows)], folded=True)


def _place(group: Group, row: int) -> tuple[int, int]:
    """Return episode and step, to sort by."""
    return int(group.rollout.batch.trajectory[row]), int(group.rollout.batch.step[row])


def _one_line(text: str, length: int = LINE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."
