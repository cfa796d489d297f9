"""Cost that grows only as the work does: estimators, environments, histories, iterations. Times of the processor.

    python -m benchmarks.growth [--most 1.0] [--picture docs/images/growth.svg]

Each row has a baseline in the same run: what the code did before, or the same work at the smallest size. The picture
shows the cost of one unit of work against the size, relative to the smallest size.
"""

import argparse
import io
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import hgpo_gym as hg
from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import later_in_sequence
from hgpo_gym.envs import make_vec
from hgpo_gym.memory import PromptTemplate, make_memory
from hgpo_gym.memory.context import Context, PastSteps
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Sampling
from hgpo_gym.policies.scripted import RandomPolicy
from hgpo_gym.rollouts.collect import collect

MAZE = "hgpo_gym/SignpostMaze-v0"
TINY_RUN = (
    *("env=signpost_maze", "model=tabular", "rollout.num_tasks=1", "rollout.group_size=2", "evaluation.every=0"),
    *("evaluation.tasks=1", "evaluation.decoding_seeds=1", "checkpoint.every=1000", "checkpoint.rollouts_every=0"),
    *("env.sections=1", "env.distance=1", "env.max_episode_steps=5"),
)
Curves = dict[str, dict[int, float]]
"""By label, the seconds of a unit of work at each size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=float, default=1.0, help="share of the largest sizes, such as 0.1 (default 1)")
    parser.add_argument("--picture", type=Path, help="the SVG file of the curves")
    args = parser.parse_args()
    print(f"{'':<48}{'us':>12}{'baseline, us':>14}{'ratio':>8}")
    ragged_batches()
    construction()
    panels = {
        "environments": many_environments(int(4096 * args.most)),
        "steps of a batch": estimators(int(2_000_000 * args.most)),
        "steps of history": long_histories(int(10_000 * args.most)),
        "iterations of a run": iterations(int(10_000 * args.most)),
    }
    if args.picture:
        draw(panels, args.picture)


def draw(panels: dict[str, Curves], path: Path) -> None:
    """Draw a panel for each kind of size, with equal scales."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (size, curves) in zip(figure.subplots(2, 2, sharey=True).flat, panels.items(), strict=True):
        for label, curve in curves.items():
            smallest = curve[min(curve)]
            # A dashed line is a baseline, or a batch with one long episode.
            dashed = label.endswith(("anew", "ragged"))
            costs = [seconds / smallest for seconds in curve.values()]
            axes.plot(list(curve), costs, "--" if dashed else "-", linewidth=1.8, label=label)
        axes.set(xscale="log", yscale="log", ylim=(0.2, 50), yticks=[1, 10], xlabel=size)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.tick_params(left=False, bottom=False)
        axes.spines[:].set_visible(False)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper left", ncols=2)
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.supylabel("cost of one, relative", fontsize=10)
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "hgpo_gym", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata=no_metadata)
    path.write_text(file.getvalue().replace(" \nL", " L").replace(" \nz", " z"))  # a path is a line of the file


def sizes(first: int, last: int, factor: int) -> list[int]:
    """Return first, first * factor, ... and, at the end, `last`."""
    powers = []
    while first < last:
        powers.append(first)
        first *= factor
    return [*powers, last]


def show(what: str, value: float, baseline: float, scale: float = 1e6) -> None:
    """Print seconds as microseconds, or, with `scale` 1, the value as it is."""
    print(f"{what:<48}{value * scale:>12.2f}{baseline * scale:>14.2f}{baseline / value:>8.2f}", flush=True)


def seconds_of(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least of several times."""
    times = []
    for _ in range(repeats):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times)


def ragged_batches() -> None:
    """A row of discounted sums, of one long episode among short ones, against a dense table."""
    for longest in (500, 2_000, 8_000):
        lengths = np.array([longest] + [10] * (longest // 10))
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        place = np.concatenate([np.arange(length) for length in lengths])
        values = np.random.default_rng(0).normal(size=len(place))
        packed = seconds_of(lambda: later_in_sequence(values, sequence, place, 0.95))  # noqa: B023 - called here
        dense = seconds_of(lambda: dense_table(values, sequence, place, 0.95))  # noqa: B023
        show(f"ragged, longest {longest:,}: a row", packed / len(place), dense / len(place))


def dense_table(values: np.ndarray, sequence: np.ndarray, place: np.ndarray, factor: float) -> np.ndarray:
    """Return what `later_in_sequence` does, by a table of all places by all sequences."""
    table = np.zeros((place.max() + 2, sequence.max() + 1))
    table[place, sequence] = values
    for position in range(len(table) - 2, -1, -1):
        table[position] += factor * table[position + 1]
    return table[place + 1, sequence]


def estimators(most: int) -> Curves:
    """A step of a batch, by estimators: episodes of 50 steps, or one that has a tenth of all steps among short ones."""
    curves: Curves = {}
    for name in ("hgpo", "hgpo_gae", "rtmc"):
        estimate(name, batch_of([50] * 8))  # what the first call imports and makes does not count
        for shape in ("even", "ragged"):
            curve = curves.setdefault(f"{name}, {shape}", {})
            for steps in sizes(10_000, most, 6):
                lengths = [50] * (steps // 50) if shape == "even" else [steps // 10] + [10] * (steps * 9 // 100)
                batch = batch_of(lengths)
                curve[steps] = seconds_of(lambda: estimate(name, batch), 1) / len(batch)  # noqa: B023
                show(f"{name}, {shape}, {steps:,} steps: a step", curve[steps], curve[min(curve)])
    return curves


def batch_of(lengths: list[int]) -> StepBatch:
    """Return walks over 20 places, in groups of 8 episodes; half of them end with reward 10."""
    generator = np.random.default_rng(0)
    trajectory = np.repeat(np.arange(len(lengths)), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])
    place = generator.integers(1, 21, size=len(step))
    keys = np.stack([np.where(step >= level, place * 7**level, 0) for level in range(3)], axis=1)
    reward = np.where(step == np.repeat(lengths, lengths) - 1, 10.0 * (trajectory % 2), 0.0)
    group, action = trajectory // 8, generator.integers(1, 5, size=len(step))
    return StepBatch(
        group, trajectory, step, reward, keys, np.zeros(len(step)),
        action=action, success=trajectory % 2 == 1, final_keys=np.full_like(keys, 99),
    )  # fmt: skip


def long_histories(longest: int) -> Curves:
    """A prompt with the whole episode, against formatting every past step anew; and its bytes that are kept, against
    a copy of each prompt."""
    template = PromptTemplate.named("brief")
    curves: Curves = {"a prompt": {}, "formatted anew": {}, "bytes kept": {}}
    walk(template, 10, copied=False)  # what the first call makes does not count
    for steps in sizes(10, longest, 10):
        curves["a prompt"][steps] = shown = seconds_of(lambda: walk(template, steps, copied=False), 1) / steps  # noqa: B023
        anew = shown
        if steps <= 1000:
            curves["formatted anew"][steps] = anew = seconds_of(lambda: walk(template, steps, copied=True), 1) / steps  # noqa: B023
        show(f"history of {steps:,} steps: a prompt", shown, anew)
        curves["bytes kept"][steps], copied = (count / steps for count in kept_bytes(template, steps))
        show(f"history of {steps:,} steps: bytes a prompt", curves["bytes kept"][steps], copied, scale=1)
    return curves


def iterations(most: int) -> Curves:
    """An iteration of a run, on average since the size before."""
    times: dict[int, float] = {}

    def note(done: int, _total: int, _words: str) -> None:
        times.setdefault(done, process_time())

    with tempfile.TemporaryDirectory() as folder:
        hg.train(overrides=TINY_RUN, iterations=most, run_dir=f"{folder}/run", progress=note)
    curve: dict[int, float] = {}
    first = min(times)
    for count in sizes(10, most, 10):
        curve[count] = (times[count] - times[first]) / (count - first)
        first = count
        show(f"iteration {count:,} of a run", curve[count], curve[min(curve)])
    return {"an iteration": curve}


def walk(template: PromptTemplate, steps: int, *, copied: bool) -> None:
    """Render the prompts of an episode; with `copied` from a tuple of its past steps."""
    for context in contexts(steps):
        template.render("Go.", context._replace(history=tuple(context.history)) if copied else context)


def contexts(steps: int) -> Iterator[Context]:
    """Yield the contexts of an episode, with its whole history."""
    memory = make_memory("full")
    for number in range(steps):
        yield memory.observe(f"You are in room {number % 50}.", ("go on",))
        memory.record("go on")


def kept_bytes(template: PromptTemplate, steps: int) -> tuple[int, int]:
    """Return the bytes of an episode's prompts as rollouts keep them, and as copies."""
    kept, copied = [], 0
    for context in contexts(steps):
        prompt = template.render("Go.", context)
        copied += len(prompt)
        assert isinstance(context.history, PastSteps)
        kept.append(context.history.split(prompt, template.past_step))
    return len(pickle.dumps(kept)), copied


def construction() -> None:
    """Make 512 environments of three kinds, against eight times 64."""
    for name, split in (("SignpostMaze", "all"), ("ALFWorld", "generated"), ("WebShop", "generated")):
        few, many = (
            seconds_of(lambda: make_vec(f"hgpo_gym/{name}-v0", num_tasks=count // 8, group_size=8, split=split).close())  # noqa: B023
            for count in (64, 512)
        )
        show(f"512 of {name}: construction", many, 8 * few)


def many_environments(most: int) -> Curves:
    """Construction and a collected row, against 64 environments."""
    curves: Curves = {"construction": {}, "a collected row": {}}
    make_vec(MAZE, num_tasks=1, split="all").close()  # what the first call imports and makes does not count
    for count in sizes(64, most, 4):
        start = process_time()
        env = ContextWrapper(make_vec(MAZE, num_tasks=count // 8, group_size=8, split="all"))
        curves["construction"][count] = (process_time() - start) / count
        ids = env.unwrapped.task_ids  # type: ignore[attr-defined]
        tasks = [ids[number % len(ids)] for number in range(count // 8)]
        seeds = [(0, number) for number in range(count // 8)]
        rows = len(collect(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds).batch)
        seconds = seconds_of(lambda: collect(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds), 2)  # noqa: B023
        curves["a collected row"][count] = seconds / rows
        for label, curve in curves.items():
            show(f"{count:,} environments: {label}", curve[count], curve[min(curve)])
        env.close()
    return curves


if __name__ == "__main__":
    main()
