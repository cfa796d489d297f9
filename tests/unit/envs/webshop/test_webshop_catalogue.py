"""WebShop's catalogue: reading, index and cache, and errors of malformed files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgpo_gym import digests
from hgpo_gym.envs.webshop.catalogue import json_stream, open_catalogue
from hgpo_gym.envs.webshop.catalogue.analyzer import analyze, stem
from hgpo_gym.envs.webshop.catalogue.json_stream import stream_array, stream_object
from hgpo_gym.envs.webshop.env import WebShopEnv
from hgpo_gym.envs.webshop.goals.goal_list import open_goals, split_positions

MakeData = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory."""
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def make_data(tmp_path: Path) -> MakeData:
    """Writes WebShop's files for custom products, each given by the fields that differ from the usual ones."""

    def make(*products: dict[str, Any], human: dict[str, Any] | None = None, folder: str = "data") -> Path:
        data = tmp_path / folder
        data.mkdir(exist_ok=True)
        usual = {
            "name": "Red Shoe",
            "full_description": "A shoe.",
            "pricing": "$10.5",
            "small_description": ["Soft ", "Light "],
            "customization_options": {"Size": [{"value": "7/8 "}, {"value": "XL"}]},
            "product_category": "Clothing \u203a Shoes",
            "category": "fashion",
            "query": " Shoes ",
        }
        rows = [{"asin": f"B{number:09}", **usual, **product} for number, product in enumerate(products)]
        about = {"attributes": ["soft sole"], "instruction": "Find shoes", "instruction_attributes": ["soft sole"]}
        (data / "items_shuffle.json").write_text(json.dumps(rows))
        (data / "items_ins_v2.json").write_text(json.dumps({row["asin"]: about for row in rows}))
        (data / "items_human_ins.json").write_text(json.dumps(human or {}))
        return data

    return make


# Words


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Women\u2019s T-Shirt, the size:XL", ["women", "t", "shirt", "size:xl"]),
        ("4.5 x 1,000 i.b.m _foo_bar 3-way", ["4.5", "x", "1,000", "i.b.m", "_foo_bar", "3", "wai"]),
        ("\u4e2d\u6587 \u30ab\u30bfb", ["\u4e2d", "\u6587", "\u30ab\u30bf", "b"]),
        ("shoes\u2122 \u2605\u2605 \u2764\ufe0f", ["shoe", "\u2122", "\u2605", "\u2605", "\u2764\ufe0f"]),
        ("\u0130I \u03a3\u03a3", ["ii", "\u03c3\u03c3"]),
        ("it is \u2014 ... ' _", []),
    ],
)
def test_words_are_those_of_lucene(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("possibly", "possibl"),  # bli to ble; without that variant: possibli
        ("assemblies", "assembl"),
        ("apologies", "apolog"),  # logi to log; without: apologi
        ("bly", "bly"),
        ("logy", "logi"),
        ("relational", "relat"),
        ("skies", "ski"),
        ("as", "as"),  # two letters are left; Porter's first version: a
    ],
)
def test_stems_are_those_of_lucene(word: str, expected: str) -> None:
    assert stem(word) == expected


# Search


def test_equal_scores_are_ordered_by_id(make_data: MakeData) -> None:
    catalogue = open_catalogue(make_data({"asin": "B3"}, {"asin": "A2"}, {"asin": "B1"}, {"asin": "A10"}))
    assert catalogue.search("shoes") == ("A10", "A2", "B1", "B3")
    assert catalogue.search("shoes", 2) == ("A10", "A2")


# Products


def test_products_are_cleaned(make_data: MakeData) -> None:
    data = make_data(
        {},
        {"pricing": "$1,099.00 - $20", "small_description": "One line", "customization_options": {"Color": None}},
        {"pricing": "", "full_description": None, "product_category": None},
        {"pricing": None, "customization_options": [], "small_description": None},
        {"pricing": "free"},
    )
    catalogue = open_catalogue(data)
    products = [catalogue.product(number) for number in range(len(catalogue))]
    assert [product.price for product in products] == ["$10.5", "$1099.0 to $20.0", "$100.0", "$100.0", "$100.0"]
    assert products[0].options == {"size": ["7 | 8", "xl"]}
    assert products[0].query == "shoes"
    assert products[0].indexed_text == "red shoe a shoe. soft  size: 7 | 8, xl"
    assert (products[1].bullets, products[1].options) == (["One line"], {})
    assert products[2].description == ""
    assert np.isnan(catalogue.price_high).tolist() == [True, False, True, True, True]


def test_nested_fields_of_other_shapes_count_as_empty_and_files_may_begin_with_a_mark(make_data: MakeData) -> None:
    shapes: list[Any] = [None, 5, True, "text", ["S", None, {"value": 3}], {"value": "S"}, [["S"]]]
    data = make_data(
        {"customization_options": {"Size": [{"value": "S"}, "M", None, {"value": 3}]}},
        *({"customization_options": {"Size": shape}} for shape in shapes),
        *({name: shape} for shape in shapes for name in ("customization_options", "small_description", "pricing")),
    )
    about = json.loads((data / "items_ins_v2.json").read_text())
    for asin, shape in zip(list(about), [["soft", 1], *shapes, *shapes, *shapes], strict=False):
        about[asin] = {"attributes": shape, "instruction": shape, "instruction_attributes": shape}
    for asin, whole in zip(list(about)[-len(shapes) :], shapes, strict=True):
        about[asin] = whole
    entry = {"instruction": "x.", "instruction_attributes": ["soft", 1], "instruction_options": "xl"}
    unsaid = {**entry, "instruction": None}
    human = {asin: [entry, unsaid, shape] for asin, shape in zip(about, shapes, strict=False)} | {"B000000008": "x"}
    for name, content in (("items_ins_v2", about), ("items_human_ins", human)):
        (data / f"{name}.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode())
    (data / "items_shuffle.json").write_bytes(b"\xef\xbb\xbf" + (data / "items_shuffle.json").read_bytes())

    catalogue = open_catalogue(data)
    first, *others = [catalogue.product(number) for number in range(len(catalogue))]
    assert (first.options, first.attributes, first.instruction) == ({"size": ["s"]}, ["soft"], None)
    assert [product.options for product in others[: len(shapes)]] == [{}, {}, {}, {}, {"size": []}, {}, {"size": []}]
    assert [product.attributes for product in others[4:6]] == [["S"], ["DUMMY_ATTR"]]
    assert [product.instruction_attributes for product in others[:4]] == [[], [], [], []]
    goals = open_goals(catalogue, "human", 0)
    output = {(goal.instruction.partition(",")[0], goal.attributes, goal.options) for goal in goals}
    assert output == {("x", ("soft",), ())}
    assert len(goals) == len(shapes)


def test_products_that_the_benchmark_leaves_out(make_data: MakeData) -> None:
    data = make_data({"asin": "A1", "name": "first"}, {"asin": "nan"}, {"asin": "B00000000001"}, {"asin": None}, {})
    rows = json.loads((data / "items_shuffle.json").read_text())
    (data / "items_shuffle.json").write_text(json.dumps([*rows, {**rows[0], "name": "again"}, "text", None]))
    catalogue = open_catalogue(data)
    assert [catalogue.product(number).asin for number in range(len(catalogue))] == ["A1", "B000000004"]
    assert catalogue.product(0).title == "first"
    assert [catalogue.number(asin) for asin in ("A1", "B000000004", "B00000000001", "", "a1")] == [
        0, 1, None, None, None,
    ]  # fmt: skip


def test_options_with_brackets_can_be_chosen(make_data: MakeData) -> None:
    """In the original they cannot: the action is read up to the last bracket."""
    values = [{"value": "a [b]"}, {"value": "Reviews"}, {"value": "c]"}]
    env = WebShopEnv(data=make_data({"customization_options": {"Kind": values}}), goals="synthetic", split="all")
    env.reset()
    env.step("search[shoe]")
    *_, info = env.step("click[b000000000]")
    assert info["admissible_actions"][5:] == ("click[buy now]", "click[a [b]]", "click[c]]")
    for value in ("c]", "a [b]"):
        *_, info = env.step(f"click[{value}]")
        assert info["action_valid"]
    assert env.save_state().state.options == (("kind", "a [b]"),)


def test_a_long_page_is_cut_to_the_observation_space(make_data: MakeData) -> None:
    env = WebShopEnv(data=make_data({"full_description": "long " * 20_000}), goals="synthetic", split="all")
    env.reset()
    env.step("search[shoe]")
    env.step("click[b000000000]")
    observation, *_ = env.step("click[description]")
    assert len(observation) == env.max_text_length
    assert observation in env.observation_space


# Goals


def test_splits_of_a_full_catalogue(make_data: MakeData) -> None:
    catalogue = open_catalogue(make_data(*({} for _ in range(1001))))
    goals = open_goals(catalogue, "synthetic", 0)
    assert len(goals) == 2002
    splits = ("test", "eval", "train", "all")
    assert [split_positions(goals, catalogue, split) for split in splits] == [
        range(500), range(500, 1500), range(1500, 2002), range(2002),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="Unknown split 'validation'"):
        split_positions(goals, catalogue, "validation")


def test_human_goals(make_data: MakeData) -> None:
    """Goals without attributes, and goals of products that the catalogue does not have, are left out."""

    def entry(text: str, *attributes: str) -> dict[str, Any]:
        return {"instruction": text, "instruction_attributes": attributes, "instruction_options": ["xl"]}

    human = {"B000000001": [entry("one.", "soft"), entry("two"), entry("one.", "soft")], "X": [entry("no", "soft")]}
    human["B000000000"] = [entry("..three..", "soft")]
    catalogue = open_catalogue(make_data({"pricing": "$2000"}, {"pricing": "$985"}, human=human))
    goals = open_goals(catalogue, "human", 0)
    assert sorted(goal.instruction for goal in goals) == ["one", "one", "three"]
    assert len({goals.goal_id(position) for position in range(3)}) == 3
    assert {goal.options for goal in goals} == {((None, "xl"),)}


def test_no_goal_for_these_products(make_data: MakeData) -> None:
    data = make_data({}, human={"X": [{"instruction": "x", "instruction_attributes": ["y"]}]})
    with pytest.raises(
        ValueError, match=r"No goal in .*items_human_ins.json is about a product of .*items_shuffle.json"
    ):
        WebShopEnv(data=data)
    (data / "items_human_ins.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no items_human_ins.json: .*env\.goals=synthetic"):
        WebShopEnv(data=data)
    assert len(WebShopEnv(data=data, goals="synthetic", split="all").goals) == 2


# Files


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_json_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    elements = [{"a": [1, ']}, \u20ac\\"']}, 12345, [], "x" * 50, float("inf"), None, {}]
    (tmp_path / "array.json").write_text(json.dumps(elements, indent=1, ensure_ascii=False), encoding="utf-8")
    members = {str(number): element for number, element in enumerate(elements)}
    (tmp_path / "object.json").write_text(f" {json.dumps(members)}\n")
    read: list[int] = []
    assert list(stream_array(tmp_path / "array.json", read.append)) == elements
    assert sum(read) == (tmp_path / "array.json").stat().st_size
    assert {key: json.loads(text) for key, text in stream_object(tmp_path / "object.json")} == members
    for empty, read_all in (("[ ]", stream_array), ("{}", stream_object)):
        (tmp_path / "empty.json").write_text(empty)
        assert list(read_all(tmp_path / "empty.json")) == []


@pytest.mark.parametrize(
    "text", ["", "{}", '[{"a": 1}', '[{"a": 1},', '[{"a": 1} {"a"', '[{"a', "[1, \ufffd]", "nothing"]
)
def test_json_that_is_not_whole(tmp_path: Path, text: str) -> None:
    file = tmp_path / "items_shuffle.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"items_shuffle.json is not whole: .* 'hgpo-gym data webshop'"):
        list(stream_array(file))


def test_a_truncated_file_leaves_the_old_catalogue_alone(make_data: MakeData, cache: Path) -> None:
    data = make_data({}, {})
    old = open_catalogue(data).folder
    whole = (data / "items_shuffle.json").read_text()
    for damage in (whole[:-40], whole.replace('"name": "Red', '"name" "Red', 1), whole.replace("Red", "\udcff", 1)):
        (data / "items_shuffle.json").write_text(damage, errors="surrogateescape")
        with pytest.raises(ValueError, match="not whole"):
            open_catalogue(data)
        assert list((cache / "webshop" / "catalogues").iterdir()) == [old]
    (data / "items_shuffle.json").write_text(whole)
    assert open_catalogue(data).folder == old


def test_a_full_disk_is_explained_and_leaves_nothing(webshop_data: Path, cache: Path) -> None:
    code = (
        "import resource, sys\n"
        "from hgpo_gym.envs.webshop.catalogue import open_catalogue\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))\n"
        "open_catalogue(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(webshop_data), "1000000"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    message = result.stderr.strip().splitlines()[-1]
    assert "while making" in message, result.stderr
    assert "set HGPO_GYM_CACHE to a folder that has it" in message
    assert list((cache / "webshop" / "catalogues").iterdir()) == []


def test_a_damaged_cache_is_named_set_aside_and_made_anew(make_data: MakeData) -> None:
    data = make_data({})
    folder = open_catalogue(data).folder
    with (folder / "products.bin").open("ab") as file:
        file.write(b"x")
    digests._damage_once.cache_clear()
    with pytest.warns(UserWarning, match=r"is damaged: products.bin \(.* bytes\) is not what was written. It is now"):
        assert open_catalogue(data).folder == folder
    (folder / "manifest").unlink()
    digests._damage_once.cache_clear()
    with pytest.warns(UserWarning, match=r"is damaged: its manifest is damaged or missing"):
        open_catalogue(data)
    assert len(list(folder.parent.glob("unsound_*"))) == 2


def test_a_catalogue_of_other_code_is_not_used(make_data: MakeData, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data({})
    old = open_catalogue(data).folder
    monkeypatch.setattr("hgpo_gym.envs.webshop.catalogue.catalogue.source_digest", lambda *_modules: "another version")
    new = open_catalogue(data).folder
    assert new != old
    assert old.is_dir()


def test_a_catalogue_is_built_once(make_data: MakeData) -> None:
    data = make_data({}, {})
    heard: list[tuple[int, int]] = []
    first = open_catalogue(data, lambda done, total, _words: heard.append((done, total)))
    assert (
        heard[-1][0]
        == heard[-1][1]
        == sum((data / f"items_{name}.json").stat().st_size for name in ("shuffle", "ins_v2"))
    )
    heard.clear()
    assert open_catalogue(data, lambda done, total, _words: heard.append((done, total))) is first
    (data / "items_shuffle.json").touch()
    assert open_catalogue(data) is first
    assert heard == []


def test_changed_files_make_another_catalogue(make_data: MakeData) -> None:
    one = open_catalogue(make_data({"name": "one"}))
    other = open_catalogue(make_data({"name": "other"}))
    assert (one.product(0).title, other.product(0).title) == ("one", "other")


def test_missing_files_are_named(tmp_path: Path, make_data: MakeData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"nowhere: expected items_shuffle\*\.json\. Run .*or set data="):
        WebShopEnv()
    data = make_data({})
    monkeypatch.setenv("WEBSHOP_DATA", str(data))
    assert len(WebShopEnv(goals="synthetic", split="all").catalogue) == 1
    (data / "items_shuffle_1000.json").write_text("[]")
    with pytest.raises(ValueError, match=r"several catalogues, .* set data=.* to the file to use"):
        WebShopEnv(data=data)
    assert len(open_catalogue(data / "items_shuffle.json")) == 1
    with pytest.raises(FileNotFoundError, match=r"needs items_ins_v2_1000\.json beside it"):
        WebShopEnv(data=data / "items_shuffle_1000.json")
    with pytest.raises(ValueError, match="not a file of WebShop's products"):
        WebShopEnv(data=data / "items_ins_v2.json")
    (data / "items_ins_v2_1000.json").write_text("{}")
    with pytest.raises(ValueError, match="lists no product"):
        WebShopEnv(data=data / "items_shuffle_1000.json")
