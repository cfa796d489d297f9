"""Looking at one group of one iteration: `inspect_run`; at what was said in an evaluation: `inspect_evaluation`; at
episodes whose environment failed: `inspect_failures`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.analysis.inspection.group import find_group, open_group
from hgpo_gym.analysis.inspection.view import all_groups, group_sections
from hgpo_gym.analysis.report.blocks import Chapter, Section
from hgpo_gym.analysis.report.write import show, write_html
from hgpo_gym.analysis.transcripts import conversation, failed_episode, failed_episodes, transcript_sections
from hgpo_gym.files import check_can_be_written
from hgpo_gym.rollouts import conversations, failures
from hgpo_gym.rollouts import saved as kept_rollouts
from hgpo_gym.runs.directory import RunDirectory, read_config
from hgpo_gym.runs.run_files import damage_named


def inspect_run(
    run_dir: Path,
    *,
    iteration: int | None,
    task: str | None,
    step: str | None,
    html: Path | None,
    console: Console,
) -> None:
    """Show a group of a run's kept rollouts: its episodes as a graph of observations, one of its steps among those it
    is compared with, and what every estimator makes of it.

    Args:
        run_dir: the run, finished or not.
        iteration: as in metrics.jsonl; None is the last one kept.
        task: a group's number, a task id or a part of one; None lists the groups.
        step: `episode.step`; None is the step on which the estimators differ most.
        html: a file to write the same to, with the graph as a picture.
        console: where it is shown.

    Raises:
        FileNotFoundError: no run, or the iteration's rollout was not kept.
        ValueError: no such group or step, a damaged file of the run, or an estimator of a plugin that is not loaded.
    """
    config_path = run_dir / "config.yaml"
    config = read_config(run_dir)
    if (name := config["algo"]["name"]) not in ESTIMATORS:
        brought = f", which plugins=[{','.join(plugins)}] brought" if (plugins := config.get("plugins")) else ""
        raise ValueError(
            f"{run_dir} was trained with the estimator {name!r}{brought}. It is not known here, and code is run only "
            "if you name it: add --plugins FILE, your copy of it, or install the package that has it."
        )
    folder = run_dir / "rollouts"
    chosen = iteration if iteration is not None else max(kept_rollouts.kept_iterations(folder), default=0)
    rollout = kept_rollouts.load(folder, chosen)
    title = f"{run_dir.name}, iteration {chosen}"
    if task is None:
        sections = [all_groups(rollout)]
    else:
        number = find_group(rollout, task)
        with damage_named(config_path):
            algo, compared_by = config["algo"], str(config["memory"]["key"])
            ESTIMATORS.check_options(algo["name"], {key: value for key, value in algo.items() if key != "name"})
        group = open_group(rollout, number, algo)
        row = group.most_disputed() if step is None else group.row(step)
        title += f": group {number}, {group.task_id}"
        sections = group_sections(group, row, compared_by)
    _show(title, sections, run_dir, html, console)


def inspect_evaluation(
    run_dir: Path, *, iteration: int | None, task: str | None, html: Path | None, console: Console
) -> None:
    """Show what was said in an evaluation of a run while it trained: its episodes, or one of them.

    Args:
        run_dir: the run, finished or not.
        iteration: after which it was, 0 before the first; None is the last one.
        task: the number of an episode; None lists them.
        html: a file to write the same to, with all of the episodes.
        console: where it is shown.

    Raises:
        FileNotFoundError: nothing was kept of such an evaluation.
        ValueError: no such episode, or the file is damaged.
    """
    folder = RunDirectory(run_dir)
    kept = sorted(path.name for path in folder.evaluations_path.glob("iteration_*.jsonl.gz"))
    path = folder.evaluations_path / kept[-1] if iteration is None and kept else folder.evaluation_path(iteration or 0)
    if not path.exists():
        there = f"there are {', '.join(kept)}" if kept else "there is none"
        raise FileNotFoundError(
            f"No evaluation {path.name} in {folder.evaluations_path}: {there}. A run keeps checkpoint.transcripts "
            "episodes of each (0: none)."
        )
    told = conversations.read(path)
    title = f"{run_dir.name}, evaluation {path.name.partition('.')[0].replace('_', ' ')}"
    if task is None:
        sections = transcript_sections(told)
    elif task in map(str, range(1, len(told) + 1)):
        sections = [conversation(told[int(task) - 1], int(task), folded=False)]
    else:
        raise ValueError(f"--task {task}: of this evaluation the episodes 1 to {len(told)} are kept.")
    _show(title, sections, run_dir, html, console)


def inspect_failures(
    run_dir: Path, *, iteration: int | None, task: str | None, html: Path | None, console: Console
) -> None:
    """Show the attempts at an episode of a run whose environment raised an error or hung: all of them, or one with its
    traceback and all that was said.

    Args:
        run_dir: the run, finished or not.
        iteration: of the training, and of the evaluation after it; None is all.
        task: the number of one in the list; None lists them.
        html: a file to write the same to, with all that was said.
        console: where it is shown.

    Raises:
        FileNotFoundError: there is none.
        ValueError: no such number, or a file is damaged.
    """
    folder = RunDirectory(run_dir).failures_path
    told = [
        (number, phase, failure)
        for number, phase, path in failures.kept(folder)
        if iteration in (None, number)
        for failure in failures.read(path)
    ]
    if not told:
        when = "" if iteration is None else f" of iteration {iteration}"
        raise FileNotFoundError(f"No failures{when} in {folder}: no environment has raised an error or hung.")
    if task is None:
        sections = [failed_episodes(told), *(failed_episode(*one, place) for place, one in enumerate(told, start=1))]
    elif task in map(str, range(1, len(told) + 1)):
        sections = [failed_episode(*told[int(task) - 1], int(task), folded=False)]
    else:
        raise ValueError(f"--task {task}: there are the failures 1 to {len(told)}.")
    _show(f"{run_dir.name}, failures", sections, run_dir, html, console)


def _show(title: str, sections: Sequence[Section], run_dir: Path, html: Path | None, console: Console) -> None:
    if html is not None:
        check_can_be_written(html)
    chapters = [Chapter("", "", sections)]
    show(title, chapters, console)
    if html is not None:
        write_html(title, chapters, f"Made by hgpo-gym inspect from {run_dir}.", html)


__all__ = ["inspect_evaluation", "inspect_failures", "inspect_run"]
