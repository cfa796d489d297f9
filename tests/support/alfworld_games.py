"""Games of ALFWorld: released ones, and a kitchen with what is rare or absent in them."""

import json
from importlib.resources import files
from pathlib import Path

TASK_TYPES = (
    "look_at_obj_in_light", "pick_and_place_simple", "pick_clean_then_place_in_recep", "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep", "pick_two_obj_and_place",
)  # fmt: skip
# A kitchen with what is rare or absent in the released games: two cabinets at one location, an apple that is in both of
# them and another one that is in two places, a knife in a closed drawer, names without coordinates, a receptacle that
# is in no game.
KITCHEN = """
(define (problem kitchen) (:domain alfred)
 (:objects agent1 - agent  Curtains - object  AppleType - otype  KnifeType - otype  MugType - otype  LampType - otype
    CabinetType - rtype  CounterTopType - rtype  SinkBasinType - rtype  SinkType - rtype  MicrowaveType - rtype
    FridgeType - rtype  DrawerType - rtype  BoxType - otype  ButterKnifeType - otype
    Apple_bar_1 - object  Apple_bar_2 - object  Apple_bar_3 - object  Knife_bar_1 - object  Mug_bar_1 - object
    DeskLamp_bar_1 - object  Box_bar_1 - object  Watch_bar_1 - object
    Cabinet_bar_1 - receptacle  Cabinet_bar_2 - receptacle  CounterTop_bar_1 - receptacle
    Sink_bar_1_bar_SinkBasin - receptacle  Microwave_bar_1 - receptacle  Fridge_bar_1 - receptacle
    Drawer_bar_1 - receptacle  Drawer_bar_2 - receptacle
    loc_bar_0 - location  loc_bar_1 - location  loc_bar_2 - location  loc_bar_3 - location  loc_bar_4 - location
    loc_bar_5 - location  loc_bar_6 - location)
 (:init
    (receptacleType Cabinet_bar_1 CabinetType) (receptacleType Cabinet_bar_2 CabinetType)
    (receptacleType CounterTop_bar_1 CounterTopType) (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType)
    (receptacleType Microwave_bar_1 MicrowaveType) (receptacleType Fridge_bar_1 FridgeType)
    (receptacleType Drawer_bar_1 DrawerType) (receptacleType Drawer_bar_2 DrawerType)
    (objectType Apple_bar_1 AppleType) (objectType Apple_bar_2 AppleType) (objectType Apple_bar_3 AppleType)
    (objectType Knife_bar_1 KnifeType) (objectType Mug_bar_1 MugType) (objectType DeskLamp_bar_1 LampType)
    (objectType Box_bar_1 BoxType) (moveable Curtains)
    (canContain CabinetType AppleType) (canContain CounterTopType AppleType) (canContain SinkBasinType AppleType)
    (canContain MicrowaveType AppleType) (canContain FridgeType AppleType) (canContain DrawerType AppleType)
    (canContain CabinetType MugType) (canContain CounterTopType MugType) (canContain FridgeType MugType)
    (canContain CounterTopType KnifeType) (canContain DrawerType KnifeType) (canContain CabinetType BoxType)
    (pickupable Apple_bar_1) (pickupable Apple_bar_2) (pickupable Apple_bar_3) (pickupable Knife_bar_1)
    (pickupable Mug_bar_1) (pickupable Box_bar_1)
    (isReceptacleObject Box_bar_1) (isReceptacleObject Mug_bar_1) (inReceptacleObject Watch_bar_1 Box_bar_1)
    (openable Cabinet_bar_1) (openable Microwave_bar_1) (openable Fridge_bar_1) (openable Drawer_bar_1)
    (openable Drawer_bar_2) (opened Fridge_bar_1)
    (cleanable Apple_bar_1) (cleanable Apple_bar_2) (cleanable Mug_bar_1) (cleanable Knife_bar_1)
    (heatable Apple_bar_1) (heatable Apple_bar_2) (heatable Apple_bar_3) (heatable Mug_bar_1)
    (coolable Apple_bar_1) (coolable Apple_bar_2) (coolable Apple_bar_3) (coolable Mug_bar_1)
    (toggleable DeskLamp_bar_1) (toggleable Mug_bar_1)
    (sliceable Apple_bar_1) (sliceable Apple_bar_2) (sliceable Apple_bar_3)
    (isCool Apple_bar_2) (isClean Apple_bar_3)
    (inReceptacle Apple_bar_1 Cabinet_bar_1) (inReceptacle Apple_bar_1 Cabinet_bar_2)
    (inReceptacle Apple_bar_2 Fridge_bar_1) (inReceptacle Apple_bar_2 CounterTop_bar_1)
    (inReceptacle Apple_bar_3 CounterTop_bar_1) (inReceptacle Knife_bar_1 Drawer_bar_1)
    (inReceptacle Mug_bar_1 Cabinet_bar_2) (inReceptacle DeskLamp_bar_1 CounterTop_bar_1)
    (inReceptacle Box_bar_1 Cabinet_bar_1) (inReceptacle Curtains Drawer_bar_1)
    (objectAtLocation Apple_bar_1 loc_bar_1) (objectAtLocation Apple_bar_2 loc_bar_5)
    (objectAtLocation Apple_bar_3 loc_bar_2) (objectAtLocation Knife_bar_1 loc_bar_6)
    (objectAtLocation Mug_bar_1 loc_bar_1) (objectAtLocation DeskLamp_bar_1 loc_bar_2)
    (receptacleAtLocation Cabinet_bar_1 loc_bar_1) (receptacleAtLocation Cabinet_bar_2 loc_bar_1)
    (receptacleAtLocation CounterTop_bar_1 loc_bar_2) (receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_3)
    (receptacleAtLocation Microwave_bar_1 loc_bar_4) (receptacleAtLocation Fridge_bar_1 loc_bar_5)
    (receptacleAtLocation Drawer_bar_1 loc_bar_6)
    (atLocation agent1 loc_bar_0))
 (:goal GOAL))
"""
PLACE = "(and (exists (?r - receptacle) (exists (?o - object) (and {}))))"
KITCHEN_GOALS = {
    "place": PLACE.format("(inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r FridgeType)"),
    "heat": PLACE.format(
        "(heatable ?o) (objectType ?o AppleType) (receptacleType ?r DrawerType) (isHot ?o) (inReceptacle ?o ?r)"
    ),
    "clean": PLACE.format(
        "(cleanable ?o) (objectType ?o AppleType) (receptacleType ?r CabinetType) (isClean ?o) (inReceptacle ?o ?r)"
    ),
    "two": """(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 AppleType)
        (receptacleType ?r MicrowaveType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
        (objectType ?o2 AppleType) (receptacleType ?r MicrowaveType) (inReceptacle ?o2 ?r)))))))""",
    "light": """(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot LampType)
        (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
        (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))""",
}


def released_games(alfworld_data: Path, split: str, task_type: str = "") -> list[Path]:
    return sorted(alfworld_data.glob(f"json_2.1.1/{split}/{task_type}*/*/game.tw-pddl"))


def kitchen(goal: str, old: str = "", new: str = "") -> dict[str, str]:
    """The kitchen as a game by the alfworld package's rules, with `old` in its problem replaced by `new`."""
    data = files("alfworld") / "data"
    assert old in KITCHEN
    return {
        "pddl_domain": (data / "alfred.pddl").read_text(),
        "grammar": (data / "alfred.twl2").read_text().replace("UNKNOWN GOAL", f"{goal} the kitchen"),
        "pddl_problem": KITCHEN.replace("GOAL", KITCHEN_GOALS[goal]).replace(old, new),
    }


def write_game(folder: Path, game: dict[str, str]) -> Path:
    game_file = folder / "kitchen" / "trial" / "game.tw-pddl"
    game_file.parent.mkdir(parents=True, exist_ok=True)
    game_file.write_text(json.dumps(game))
    return game_file
