"""Task types of ScienceWorld, the splits of their variations, and the simplifications of the simulator."""

from collections.abc import Iterator, Sequence
from typing import Literal

from hgpo_gym.suggest import option, unknown_name

VARIATIONS = {
    "boil": 30,
    "melt": 30,
    "freeze": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "find-animal": 300,
    "grow-plant": 126,
    "grow-fruit": 126,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-shortest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
}
"""Variations of each task type, in the order of ScienceWorld's numbers, 1-1 to 10-2."""

Split = Literal["train", "dev", "test", "all"]
TELEPORT, DOORS, CONTAINERS = "teleportAction", "openDoors", "openContainers"
POTS, NO_ELECTRICITY = "selfWateringFlowerPots", "noElectricalAction"
SIMPLIFICATIONS = (TELEPORT, DOORS, CONTAINERS, POTS, NO_ELECTRICITY)
EASY = "easy"
_ELECTRICAL = ("power-component", "conductivity")


def task_ids(split: Split, tasks: Sequence[str] | None) -> tuple[str, ...]:
    """Return the ids of a split, `<task type>-<variation>`, in ScienceWorld's order.

    Raises:
        ValueError: an unknown task type.
    """
    if isinstance(tasks, str):
        tasks = [tasks]
    for name in tasks or ():
        if name not in VARIATIONS:
            raise ValueError(unknown_name("task type of ScienceWorld", name, tuple(VARIATIONS)))
    chosen = [name for name in VARIATIONS if tasks is None or name in tasks]
    return tuple(f"{name}-{variation}" for name in chosen for variation in variations(name, split))


def variations(name: str, split: Split) -> range:
    """Return the variations of a split by the simulator's rule: two quarters, the third, and the rest."""
    count = VARIATIONS[name]
    quarter = count // 4
    bounds = {"train": (0, 2 * quarter), "dev": (2 * quarter, 3 * quarter), "test": (3 * quarter, count)}
    return range(*bounds.get(split, (0, count)))


def parse_task_id(task_id: str) -> tuple[str, int]:
    """Return the task type and the variation of a task id."""
    name, _, variation = task_id.rpartition("-")
    return name, int(variation)


def is_electrical(name: str) -> bool:
    """Return whether a task type needs electrical actions."""
    return any(word in name for word in _ELECTRICAL)


def check_simplifications(names: str | Sequence[str], task_names: Iterator[str] | Sequence[str]) -> str:
    """Return simplifications as the simulator takes them, names joined by commas.

    Raises:
        ValueError: an unknown one, or one that a task type does not allow.
    """
    chosen = [name for name in names.split(",") if name] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in (EASY, *SIMPLIFICATIONS):
            raise ValueError(unknown_name("simplification", name, (EASY, *SIMPLIFICATIONS)))
    if NO_ELECTRICITY in chosen and (needs_it := next(filter(is_electrical, task_names), None)):
        raise ValueError(
            f"simplifications has {NO_ELECTRICITY}, and the task type {needs_it} needs electrical actions: leave it "
            f"out, set {option('tasks')}, or take {EASY} instead."
        )
    return ",".join(chosen)


def expanded(simplifications: str, name: str) -> str:
    """Return simplifications with `easy` replaced by what the simulator makes of it for a task type."""
    chosen = simplifications.split(",")
    if EASY not in chosen:
        return simplifications
    easy = [TELEPORT, NO_ELECTRICITY, DOORS, POTS]
    if is_electrical(name):
        easy.remove(NO_ELECTRICITY)
    return ",".join(easy + [other for other in chosen if other not in (EASY, *easy)])
