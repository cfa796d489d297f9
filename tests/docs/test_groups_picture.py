"""The picture of an estimator's groups: colours are the sets that it compares, numbers are what it compares."""

import json
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from docs_site.groups import groups
from docs_site.groups_picture import PANELS, draw_groups
from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from tests.support import ROOT

SVG = "{http://www.w3.org/2000/svg}"
EPISODES = ["RHBH", "RHRHBH", "RHBHBH", "RHRHRH"]
"""Of the maze; all but the last are won."""
ROWS = [(episode, step) for episode, seen in enumerate(EPISODES) for step in range(len(seen))]


@pytest.fixture
def batch():
    return StepBatch.from_records(
        group=["task"] * len(ROWS),
        trajectory=[episode for episode, _ in ROWS],
        step=[step for _, step in ROWS],
        observation=list("".join(EPISODES)),
        reward=[10.0 * (episode < 3 and step == len(EPISODES[episode]) - 1) for episode, step in ROWS],
        history_length=2,
    )


def read(svg):
    """The panels of a picture: title, then the colour and text of each step, None for a hollow one."""
    panels = []
    for panel in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        title, *rest = panel.iter(f"{SVG}text")
        boxes = list(panel.iter(f"{SVG}rect"))
        texts = [text.text for text in rest[-len(boxes) :]]
        panels.append((title.text, [(box.get("fill"), text) for box, text in zip(boxes, texts, strict=True)]))
    return panels


def sets_of(steps):
    """The letters of each colour's steps."""
    colours = {colour for colour, _ in steps if colour}
    return sorted(sorted({text.split()[0] for fill, text in steps if fill == colour}) for colour in colours)


def test_colours_are_the_sets_of_each_level(batch):
    *levels, (title, advantages) = read(draw_groups(batch, "hgpo", letters="".join(EPISODES), gamma=0.9))
    assert [title.split(":")[0] for title, _ in levels] == [f"Level {level}, weight {level + 1}" for level in range(3)]
    for (_, steps), expected in zip(levels, ["R H B", "RH HR HB BH", "RHB RHR HRH HBH"], strict=True):
        assert sets_of(steps) == sorted([name] for name in expected.split())
    assert levels[2][1][ROWS.index((2, 4))] == (None, "BHB 9")
    assert levels[2][1][ROWS.index((0, 1))] == (None, "RH 8.1")
    assert title == "Advantages by hgpo"
    assert len(advantages) == len(ROWS)


@pytest.mark.parametrize("estimator", PANELS)
def test_the_last_panel_has_the_advantages(estimator, batch):
    _, steps = read(draw_groups(batch, estimator, norm="mean_norm"))[-1]
    shown = [float(text.split()[1].replace("\N{MINUS SIGN}", "-")) for _, text in steps]
    expected = estimate(estimator, batch, norm="mean_norm")
    np.testing.assert_allclose(shown, expected, atol=0.051)
    colours = [
        {colour for (colour, _), value in zip(steps, expected, strict=True) if value * sign > 0} for sign in (1, -1)
    ]
    assert [len(fills) for fills in colours] == [1, 1]
    assert colours[0] != colours[1]


def test_panels_follow_the_options(batch):
    def titles(estimator, **options):
        return [title.partition(":")[0] for title, _ in read(draw_groups(batch, estimator, **options))[:-1]]

    assert titles("grpo") == ["Task group"]
    assert titles("gigpo", step_advantage_weight=0.5) == ["Task group, weight 1", "Level 0, weight 0.5"]
    assert titles("hgpo", history_length=1, weights="released") == ["Level 0, weight 2", "Level 1, weight 3"]
    assert titles("hgpo", history_length=0, base_group=True) == ["Level 0, weight 1", "Task group, weight 1"]
    assert titles("hgpo_gae", history_length=0) == ["Level 0, weight 1", "HGPO's advantages a"]


def test_boxes_do_not_overlap_and_stay_inside(batch):
    root = ElementTree.fromstring(draw_groups(batch, "gigpo", norm="mean_norm"))
    for panel in root.iter(f"{SVG}g"):
        boxes = [
            (float(box.get("y")), float(box.get("x")), float(box.get("width"))) for box in panel.iter(f"{SVG}rect")
        ]
        for (row, left, width), (next_row, next_left, _) in pairwise(sorted(boxes)):
            assert row != next_row or left + width < next_left
        assert max(left + width for _, left, width in boxes) <= float(root.get("width"))


def test_the_episodes_of_the_documentation_are_played_in_the_maze(batch):
    """Its code blocks have the same batch, from letters."""
    expected = draw_groups(batch, "hgpo", letters="".join(EPISODES), gamma=0.9, norm="mean_norm")
    assert groups("hgpo") == expected
    page = (ROOT / "docs" / "methods" / "hgpo.md").read_text()
    assert f"EPISODES = {json.dumps(EPISODES)}" in page
