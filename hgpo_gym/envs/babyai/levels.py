"""Levels of BabyAI: those of minigrid, and MixedTrainLocal of Carta et al. (2023), which minigrid does not have."""

import functools
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator
from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core import roomgrid_level
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from hgpo_gym.digests import cached_folder
from hgpo_gym.files import cache_dir, content_key, source_digest
from hgpo_gym.suggest import unknown_name

# minigrid prints every draw of a level that it rejects. A global of this name hides the builtin in that module alone,
# for all threads; redirecting stdout would swallow what other threads print.
vars(roomgrid_level)["print"] = lambda *_: None

PREFIX = "BabyAI-"
MIXED = tuple(f"mixed/{kind}" for kind in ("goto", "pickup", "open", "putnext", "pick_up_seq_go_to"))
"""Kinds of MixedTrainLocal, which the original chooses at random when it is made."""
_UNSOLVED = "minigrid's bot fails at it, so that nothing shows that it can be solved"
_DEBUG = "a wrong door ends the episode"
REFUSED = {
    "PutNextS5N2Carrying": _UNSOLVED,
    "PutNextS6N3Carrying": _UNSOLVED,
    "PutNextS7N4Carrying": _UNSOLVED,
    "KeyInBox": _UNSOLVED,
    "OpenDoorsOrderN2Debug": _DEBUG,
    "OpenDoorsOrderN4Debug": _DEBUG,
}
"""Levels of minigrid that are not offered, with the reason."""


class MixedTrainLocal(LevelGen):
    """MixedTrainLocal (Carta et al., 2023): one room, or two with a locked door between them for `open`. Missions that
    name one of `HELD_OUT` are not drawn. The draws come in the order of the original, so that the same seed gives the
    same task.

    Args:
        kind: what is to be done, one of `MIXED` without its beginning.
        num_dists: objects beside those of the mission; in `open`, all of them but the key.
    """

    HELD_OUT = ("yellow box", "red key", "red door", "green ball", "grey door")

    def __init__(self, kind: str, num_dists: int):
        self._kind = kind
        columns = 2 if kind == "open" else 1
        super().__init__(num_rows=1, num_cols=columns, num_dists=num_dists, unblocking=False, implicit_unlock=False)

    def gen_mission(self) -> None:
        draw = getattr(self, f"_draw_{self._kind}")
        accepted = False
        while not accepted:
            RoomGrid._gen_grid(self, self.width, self.height)
            self.instrs: Instr = draw()
            # The order matters: a description of nothing raises, as it does in the original.
            mission = self.instrs.surface(self)
            accepted = self.check_objs_reachable(raise_exc=False) and not any(name in mission for name in self.HELD_OUT)

    def _draw_goto(self) -> Instr:
        return GoToInstr(_described(self._rand_elem(self._objects(1))))

    def _draw_pickup(self) -> Instr:
        return PickupInstr(_described(self._rand_elem(self._objects(1))))

    def _draw_putnext(self) -> Instr:
        return PutNextInstr(*self._two_objects())

    def _draw_pick_up_seq_go_to(self) -> Instr:
        first, second = self._two_objects()
        pick_up, go_to = PickupInstr(first), GoToInstr(second)
        if self._rand_elem(["before", "after"]) == "before":
            return BeforeInstr(pick_up, go_to)
        return AfterInstr(go_to, pick_up)

    def _draw_open(self) -> Instr:
        color = self._rand_elem(["yellow", "green", "blue", "purple"])
        self._lock_a_room(color)
        self.connect_all()
        for column in range(self.num_cols):
            if self.get_room(column, 0) is not self.locked_room:
                self.add_distractors(column, 0, num_distractors=self.num_dists, all_unique=False)
        self.place_agent()
        while self.room_from_pos(*self.agent_pos) is self.locked_room:
            self.place_agent()
        return OpenInstr(ObjDesc("door", self._rand_elem([None, color])))

    def _lock_a_room(self, color: str) -> None:
        """Lock the door between the rooms, and put its key into the room that is left."""
        while True:
            column, row, side = (self._rand_int(0, end) for end in (self.num_cols, self.num_rows, 4))
            self.locked_room = self.get_room(column, row)
            if self.locked_room.neighbors[side] is not None:
                break
        self.add_door(column, row, side, color, locked=True)
        while True:
            column, row = (self._rand_int(0, end) for end in (self.num_cols, self.num_rows))
            if self.get_room(column, row) is not self.locked_room:
                break
        self.add_object(column, row, "key", color)

    def _objects(self, named: int) -> list[WorldObj]:
        """Place the agent, then the distractors and as many objects as the mission names."""
        self.place_agent()
        return self.add_distractors(num_distractors=self.num_dists + named, all_unique=False)

    def _two_objects(self) -> tuple[ObjDesc, ObjDesc]:
        """Draw two objects. The second looks like the first only if there are two of that look."""
        objects = self._objects(2)
        looks = [(obj.type, obj.color) for obj in objects]
        first = second = self._rand_elem(looks)
        second = self._rand_elem(looks)
        while second == first and looks.count(first) < 2:
            second = self._rand_elem(looks)
        return ObjDesc(*first), ObjDesc(*second)


def _described(obj: WorldObj) -> ObjDesc:
    return ObjDesc(obj.type, obj.color)


def level_names() -> list[str]:
    """Return the names of all levels that are offered: an id of minigrid without `BabyAI-` and its version."""
    return [name for name in _ids() if name not in REFUSED] + list(MIXED)


def check_level(name: str) -> None:
    """Raise ValueError, which names the reason or the nearest level, if a level is not offered."""
    if reason := REFUSED.get(name):
        raise ValueError(f"level={name} cannot be played: {reason}. Choose another.")
    if name not in (names := level_names()):
        raise ValueError(unknown_name("level of BabyAI", name, names))


def make_level(name: str, num_dists: int) -> RoomGridLevel:
    """Make a level without its images, which take most of the time of a step in minigrid."""
    level: Any
    if name in MIXED:
        level = MixedTrainLocal(name.partition("/")[2], num_dists)
    else:
        spec = gymnasium.spec(_ids()[name])
        level = load_env_creator(spec.entry_point)(**spec.kwargs)  # type: ignore[arg-type]  # a text here
    level.gen_obs = dict
    return level


def make_start(name: str, seed: int, num_dists: int) -> RoomGridLevel:
    """Make a level and begin its episode of a seed. A level that is made anew keeps nothing of an earlier episode."""
    level = make_level(name, num_dists)
    level.reset(seed=seed)
    return level


@functools.cache
def find_starts(name: str, seeds: int, num_dists: int) -> tuple[tuple[int, str, str], ...]:
    """Return the first seed of each distinct start of a level, with a key of the start and the mission.

    A start is the grid, the agent's place and direction, and the mission. Large levels take 10 ms a seed, so the result
    is stored.
    """

    def fill(folder: Path) -> None:
        found: dict[str, tuple[int, str]] = {}
        for seed in range(seeds):
            level = make_start(name, seed, num_dists)
            found.setdefault(_start_key(level), (seed, level.mission))
        rows = [(seed, start, mission) for start, (seed, mission) in found.items()]
        (folder / "starts.json").write_text(json.dumps(rows))

    key = content_key([name, seeds, num_dists, version("minigrid"), source_digest(sys.modules[__name__])])
    folder = cached_folder(cache_dir() / "babyai" / key, fill)
    return tuple((seed, start, mission) for seed, start, mission in json.loads((folder / "starts.json").read_text()))


def _start_key(level: RoomGridLevel) -> str:
    cells = [cell and list(map(int, cell.encode())) for cell in level.grid.grid]
    agent = [*map(int, level.agent_pos), int(level.agent_dir)]
    return content_key([level.grid.width, cells, agent, level.mission])


@functools.cache
def _ids() -> dict[str, str]:
    return {id.removeprefix(PREFIX).rpartition("-v")[0]: id for id in gymnasium.registry if id.startswith(PREFIX)}
