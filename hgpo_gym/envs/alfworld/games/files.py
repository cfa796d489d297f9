"""ALFWorld's game files: their names, their content and its checks.

A game is a folder with `game.tw-pddl` and `traj_data.json`.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
TASK_MARKER = "Your task is to: "
"""Text before the instruction in a game's opening text, and in its grammar."""

GAME_FILE = "game.tw-pddl"
TRAJECTORY_FILE = "traj_data.json"
VERSION_FOLDER = "json_2.1.1"


class InvalidGameError(ValueError):
    """Error for a game's files that are damaged or malformed. `file` names the file, `reason` the defect."""

    def __init__(self, file: Path, reason: str):
        super().__init__(file, reason)  # all of them, for the way back from a worker process
        self.file, self.reason = file, reason

    def __str__(self) -> str:
        remedy = "Remove its folder, or restore it with 'hgpo-gym data alfworld'."
        return f"{self.file} is not a valid ALFWorld game: {self.reason}. {remedy}"


def read_game(file: Path) -> dict[str, Any]:
    """Return the content of a `game.tw-pddl` file: `pddl_domain`, `pddl_problem`, `grammar`, `solvable` and others.

    Raises:
        InvalidGameError: it is not a valid game, as far as its text can tell.
    """
    game = _read_json(file)
    for key in ("pddl_domain", "pddl_problem", "grammar"):
        if not isinstance(game.get(key), str):
            raise InvalidGameError(file, f"it has no text {key!r}")
    problem = game["pddl_problem"]
    if "(:goal" not in problem or problem.count("(") != problem.count(")"):
        raise InvalidGameError(file, "its 'pddl_problem' is not a whole PDDL problem")
    if TASK_MARKER not in game["grammar"]:
        raise InvalidGameError(file, f"its 'grammar' has no {TASK_MARKER.strip()!r}")
    return game


def read_trajectory(game_file: Path) -> dict[str, Any]:
    """Return the `traj_data.json` beside a game: `task_type`, `pddl_params` (the task's object types) and others.

    Raises:
        InvalidGameError: it is missing or damaged.
    """
    file = game_file.with_name(TRAJECTORY_FILE)
    if not file.is_file():
        raise InvalidGameError(game_file, f"there is no {TRAJECTORY_FILE} beside it")
    trajectory = _read_json(file)
    if not isinstance(trajectory.get("task_type"), str):
        raise InvalidGameError(file, "it has no text 'task_type'")
    params = trajectory.get("pddl_params")
    names = ("object_target", "parent_target", "toggle_target")
    if not isinstance(params, dict) or not all(isinstance(params.get(name), str) for name in names):
        raise InvalidGameError(file, f"its 'pddl_params' must have the texts {', '.join(names)}")
    return trajectory


def examine_game(file: Path, folder: Path) -> dict[str, str]:
    """Read a game that lies below `folder`: its `task_id` and `task_type`, or why it is `skipped`.

    Raises:
        InvalidGameError: the game is damaged.
    """
    relative_path = str(file.parent.relative_to(folder))
    if "movable" in relative_path or "Sliced" in relative_path:
        return {"skipped": "movable receptacles or sliced objects"}
    trajectory = read_trajectory(file)
    if trajectory["task_type"] not in TASK_TYPES:
        return {"skipped": "other task types"}
    content = read_game(file)
    if not content.get("solvable"):
        return {"skipped": "not marked solvable"}
    return {"task_id": task_id(content, trajectory), "task_type": trajectory["task_type"]}


def game_files(folder: Path) -> list[Path]:
    """Return every `game.tw-pddl` below a folder, in the order of their paths."""
    return sorted(Path(place, GAME_FILE) for place, _, names in os.walk(folder) if GAME_FILE in names)


def task_id(content: Mapping[str, Any], trajectory: Mapping[str, Any]) -> str:
    """Return the id of a game from the content of its two files. `find_games` describes the format."""
    params = trajectory["pddl_params"]
    name_parts = [trajectory["task_type"], params["object_target"], params["parent_target"] or params["toggle_target"]]
    text = content["pddl_problem"] + content["grammar"]
    # JSON may hold lone surrogates, which plain UTF-8 refuses.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return "-".join([*name_parts, digest])


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise InvalidGameError(file, f"it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise InvalidGameError(file, f"it holds a JSON {type(content).__name__}, not an object")
    return content
