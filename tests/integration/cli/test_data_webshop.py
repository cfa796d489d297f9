"""`hgpo-gym data webshop`: with the small catalogue's files, and against a real server on this machine."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hgpo_gym.envs.webshop.catalogue import open_catalogue
from hgpo_gym.envs.webshop.data.published import SHA256
from hgpo_gym.envs.webshop.env import WebShopEnv
from tests.integration.cli.test_data import serving
from tests.support import commands

PRODUCTS, ATTRIBUTES, HUMAN = "items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json"
Run = Callable[..., tuple[int | str | None, str, str]]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path / "data"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit status, standard output and standard error of `hgpo-gym data webshop`."""
    return partial(commands.run, capsys, "data", "webshop")


@pytest.fixture
def release(webshop_data: Path, tmp_path: Path) -> Path:
    """A folder with the three files, and others."""
    folder = tmp_path / "release"
    folder.mkdir()
    for name in (PRODUCTS, ATTRIBUTES, HUMAN):
        shutil.copyfile(webshop_data / name, folder / name)
    (folder / "reviews.json").write_text("[]")
    return folder


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_files_are_copied_and_compiled(release: Path, run: Run, tmp_path: Path) -> None:
    to = tmp_path / "data"  # where $WEBSHOP_DATA points
    status, out, err = run("--check")
    assert (status, err) == (1, "")
    assert f"Missing of the small catalogue: {PRODUCTS}, {ATTRIBUTES}, {HUMAN}." in out
    assert not to.exists()
    status, out, err = run("--from", release, "--compile")
    assert (status, err) == (0, "")
    assert names(to) == {PRODUCTS, ATTRIBUTES, HUMAN}
    for name in names(to):
        assert (to / name).read_bytes() == (release / name).read_bytes()
    assert f"{PRODUCTS}: 1,000 products" in out
    assert f"{ATTRIBUTES}: 1,000 entries\n" in out  # the published file, byte for byte
    assert f"{HUMAN}: 13 human goals, 13 about products of the small catalogue (valid, but not the known file" in out
    [built] = (tmp_path / "cache" / "webshop" / "catalogues").iterdir()
    assert f"Built of {PRODUCTS}, 1,000 products: {built}" in out
    assert open_catalogue().folder == built
    assert len(WebShopEnv(split="all").task_ids) == 13
    assert run("--check")[0] == 0
    status, out, _ = run("--from", release / HUMAN)
    assert (status, "There already: items_human_ins.json." in out) == (0, True)


@pytest.mark.parametrize("name", [PRODUCTS, ATTRIBUTES, HUMAN])
def test_a_truncated_file_is_left_out_and_named(release: Path, run: Run, tmp_path: Path, name: str) -> None:
    cut(release / name)
    status, out, err = run("--from", release)
    assert (status, err) == (1, "")
    assert f"Left out: {release / name} is not whole: it ends, or stops being JSON, in the middle" in out
    assert f"Missing of the small catalogue: {name}." in out
    assert names(tmp_path / "data") == {PRODUCTS, ATTRIBUTES, HUMAN} - {name}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (PRODUCTS, "<html>quota exceeded</html>", "'<' stands where [ should be"),
        (PRODUCTS, '[{"asin": "B1"}, 3]', f"is empty or not WebShop's {PRODUCTS}"),
        (ATTRIBUTES, HUMAN, f"is empty or not WebShop's {ATTRIBUTES}"),
        (HUMAN, ATTRIBUTES, f"is empty or not WebShop's {HUMAN}"),
    ],
)
def test_a_foreign_file_does_not_replace_an_intact_one(
    release: Path, run: Run, tmp_path: Path, name: str, content: str, reason: str
) -> None:
    run("--from", release)
    intact = (release / name).read_bytes()
    other = release / content
    (release / name).write_text(other.read_text() if content in SHA256 else content)
    status, out, _ = run("--from", release)
    assert status == 1
    assert f"Left out: {release / name}" in out
    assert reason in out
    assert (tmp_path / "data" / name).read_bytes() == intact


def test_check_finds_a_damaged_file_and_compile_says_what_it_cannot_build(
    release: Path, run: Run, tmp_path: Path
) -> None:
    run("--from", release)
    file = tmp_path / "data" / PRODUCTS
    cut(file)
    status, out, _ = run("--check")
    assert status == 1
    assert f"Damaged: {file} is not whole" in out
    status, out, _ = run("--from", release / HUMAN, "--compile")
    assert status == 1
    assert f"Not built: {file} is not whole" in out


def test_what_is_missing_is_fetched(release: Path, run: Run, tmp_path: Path) -> None:
    run("--from", release)
    cut(tmp_path / "data" / ATTRIBUTES)
    (tmp_path / "data" / HUMAN).unlink()
    with serving(release) as server:
        status, _, err = run("--mirror", server.url)
        assert status == 2
        assert f"{HUMAN} is valid, but not the known file of that name: its SHA-256 is " in err
        assert "take it by --any-digest" in err
        assert names(tmp_path / "data") == {PRODUCTS, ATTRIBUTES}
        status, _, err = run("--mirror", server.url, "--any-digest")
        assert (status, err) == (0, "")
        assert server.log == [(ATTRIBUTES, None), (HUMAN, None), (HUMAN, None)]
    assert names(tmp_path / "data") == {PRODUCTS, ATTRIBUTES, HUMAN}
    assert (tmp_path / "data" / ATTRIBUTES).read_bytes() == (release / ATTRIBUTES).read_bytes()


def test_a_file_that_was_fetched_damaged_is_not_kept(release: Path, run: Run, tmp_path: Path) -> None:
    cut(release / PRODUCTS)
    with serving(release) as server:
        status, _, err = run("--mirror", server.url)
    assert status == 2
    assert f"It came from {server.url}/{PRODUCTS} and was removed" in err
    assert names(tmp_path / "data") == set()


def test_without_network_it_says_what_to_fetch_and_how_to_hand_it_over(run: Run) -> None:
    status, _, err = run("--mirror", "http://127.0.0.1:1")
    assert status == 2
    assert f"fetch {PRODUCTS}, {ATTRIBUTES}, {HUMAN} elsewhere" in err
    assert "https://github.com/princeton-nlp/WebShop/blob/master/setup.sh" in err
    assert "'hgpo-gym data webshop --from FOLDER'" in err


def test_a_full_catalogue_that_is_begun_is_the_one_to_complete(release: Path, run: Run) -> None:
    rows = json.loads((release / PRODUCTS).read_text())[:3]
    (release / "items_shuffle.json").write_text(json.dumps(rows))
    (release / PRODUCTS).unlink()
    (release / ATTRIBUTES).unlink()
    status, out, _ = run("--from", release)
    assert status == 0
    assert "items_shuffle.json: 3 products (valid, but not the known file of that name)" in out
    assert "Missing of the full catalogue: items_ins_v2.json." in out
    assert run("--check")[0] == 1


def test_sources_that_do_not_do(release: Path, run: Run, tmp_path: Path) -> None:
    assert run("--from", tmp_path / "nowhere")[::2] == (2, f"hgpo-gym: {tmp_path / 'nowhere'} does not exist.\n")
    (tmp_path / "empty").mkdir()
    assert f"No file of WebShop's in {tmp_path / 'empty'}: expected {PRODUCTS}" in run("--from", tmp_path / "empty")[2]
    other = shutil.copytree(release, tmp_path / "other")
    status, _, err = run("--from", release, "--from", other)
    assert (status, f"{release / PRODUCTS} and {other / PRODUCTS} are both there" in err) == (2, True)
