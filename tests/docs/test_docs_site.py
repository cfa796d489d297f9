"""The documentation site: built without a warning, complete, and in need of nothing from elsewhere."""

import fcntl
import html
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import product

import pytest
import yaml

from docs_site.cards import KINDS
from docs_site.config_files import config_files, explanation
from docs_site.environments import PAGES as PAGES_OF_ENVIRONMENTS
from docs_site.environments import option_meanings, own_environments
from docs_site.formulas import draw_formulas
from docs_site.headline import rows
from docs_site.hook import PARTS
from docs_site.links import rewritten
from docs_site.markdown import code, prose
from docs_site.pictures import GAMES, picture
from docs_site.reference import configuration
from hgpo_gym.cli.main import COMMANDS, EXAMPLES
from hgpo_gym.config.choices import FOLDER, REGISTRIES, choice_settings, env_section
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.envs.registration import option_defaults
from hgpo_gym.files import make_whole
from hgpo_gym.runs.metric_table import METRICS
from tests.support import ROOT
from tests.support.documents import LAUNCHED, check_command, words

pytestmark = pytest.mark.timeout(600)

CARDS = {
    "estimators": "all_estimators", "objectives": "losses", "samplers": "samplers", "shapings": "teams_and_shaping",
    "teams": "teams_and_shaping",
}  # fmt: skip


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, as `make docs` builds it: a warning would be an error. Once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with folder.with_name("site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder if folder.exists() else make_whole(folder, build)


def build(folder):
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )


class Loaded(HTMLParser):
    """The files that a page loads by itself, and its links."""

    def __init__(self):
        super().__init__()
        self.parts, self.links = [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.parts += [found[name] for name in ("src", "srcset", "poster") if name in found]
        if tag == "link":
            self.parts.append(found["href"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert not [part for part in loaded.parts if re.match(r"(https?:)?//", part)], page
        for part in [*loaded.parts, *loaded.links]:
            path = re.sub(r"[?#].*", "", part)
            if path and ":" not in path and not path.startswith("/") and page.name != "404.html":
                assert (page.parent / path).exists(), f"{page} has {part}"
    for style in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not re.search(r"@import|url\(\s*[\"']?(https?:)?//", style.read_text()), style


def test_pages_have_what_is_generated(site):
    assert "alfworld.md" not in (site / "index.html").read_text()
    for page in site.rglob("*.html"):
        assert "<!-- generated" not in page.read_text(), page
    update = (site / "methods/update.html").read_text()
    assert 'href="../reference/configuration/trainer.html#trainer-default"' in update
    assert "../../reference/configuration" not in update
    assert 'href="results/headline.csv"' in (site / "benchmarks/index.html").read_text()
    for command in COMMANDS:
        assert f'id="{command}"' in (site / "reference/commands.html").read_text()
    assert "<mfrac>" in (site / "environments/webshop.html").read_text()


def test_every_environment_has_a_page_with_its_picture_and_its_options(site):
    for record in own_environments():
        name = PAGES_OF_ENVIRONMENTS.get(record.name, record.name)
        page = html.unescape((site / f"environments/{name}.html").read_text())
        assert f'src="generated/{record.name}.svg"' in page
        for option, meaning in option_meanings(record.id).items():
            assert f"<td><code>{option}</code></td>" in page
            assert meaning
        assert option_meanings(record.id).keys() == option_defaults(record.id).keys()


@pytest.mark.parametrize(("kind", "page"), CARDS.items())
def test_every_choice_has_a_card_with_all_its_options_and_its_formula(site, kind, page):
    group, registry = KINDS[kind]
    shown = html.unescape((site / f"methods/{page}.html").read_text())
    for name in registry:
        if registry[name].__module__.startswith("hgpo_gym."):
            card = re.search(rf'<h3 id="{name}">.*?(?=<h[23]|</article>)', shown, re.DOTALL)[0]
            assert f"<code>{group}={name}</code>" in card
            for option in registry.options(name):
                assert f"<code>{group}.{option}</code>" in card, f"{name} has no {option}"
            if kind in ("estimators", "objectives"):
                assert "<pre" in card, f"The docstring of {name} shows no formula."


def flat(section, prefix=""):
    for key, value in section.items():
        if isinstance(value, dict) and value and prefix + key != "bias.estimators":
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def test_every_key_of_a_configuration_is_listed_with_its_value_and_explained():
    for path in sorted(FOLDER.rglob("*.yaml")):
        file = config_files()[path.relative_to(FOLDER).with_suffix("").as_posix()]
        values = yaml.safe_load(path.read_text())
        values.pop("defaults", None)
        folder = path.relative_to(FOLDER).parts[0]
        group = "" if path.parent == FOLDER or "_global_" in path.read_text() else f"{folder}."
        listed = {key.path: yaml.safe_load(key.default) for key in file.keys}
        expected = dict(flat(values, group))
        if path.stem in (registry := REGISTRIES.get(path.parent.name, {})):  # the signature has the rest
            expected = dict(flat(choice_settings(registry, path.stem), f"{path.parent.name}.")) | expected
        if path.parent.name == "env":
            options = json.loads(json.dumps(env_section(ENVIRONMENTS[values["env"]["id"]])))  # lists for tuples
            expected = dict(flat(options, "env.")) | expected
        estimators = expected.pop("bias.estimators", {})
        expected |= {f"bias.estimators.{label}": value for label, value in estimators.items()}
        nested = {key for key, value in listed.items() if isinstance(value, dict)}
        expected = {key: value for key, value in expected.items() if key.rpartition(".")[0] not in nested}
        expected |= {key: listed[key] for key in nested}
        assert listed == expected, path
        page = configuration(file.group)
        for key in file.keys:
            assert explanation(file, key), f"{path}: nothing says what {key.path} is"
            assert f"| {code(key.path)} |" in page, f"{path}: {key.path} is not on the page"
            assert prose(explanation(file, key)) in page, f"{path}: {key.path}"


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        (
            "objective/ppo_clip",
            "objective.clip_high",
            "Upper bound: the ratio is clipped at 1 + clip_high; a larger one is DAPO's clip-higher.",
        ),
        (
            "trainer/pretrained",
            "trainer.kl_coef",
            "Weight of the KL loss (estimator k3) to the initial weights; 0 saves",
        ),
        ("env/secret_word", "memory.window", "Past steps that the prompt shows: a number, 0 for none, null for the"),
        ("algo/hgpo", "algo.name", "Hierarchy-of-Groups Policy Optimization"),
        ("model/shared/language_model", "model.lora.rank", "LoRA: only an adapter of this rank trains"),
    ],
)
def test_a_key_is_explained_by_the_comment_that_is_about_it(name, path, expected):
    file = config_files()[name]
    [key] = [key for key in file.keys if key.path == path]
    assert explanation(file, key).startswith(expected)


def test_a_reason_in_another_group_comes_after_the_meaning():
    file = config_files()["env/secret_word"]
    [key] = [key for key in file.keys if key.path == "memory.window"]
    assert explanation(file, key).endswith("null for the whole episode. Here: Every earlier answer counts.")


def test_the_pictures_are_of_games_that_are_won():
    for name, game in GAMES.items():
        drawn = re.sub(r"<[^>]+>|&#160;", " ", picture(name))
        assert game.id in drawn.replace(" ", ""), name
        assert re.search(r"Won, +reward +\d+, +\d+ +steps\.", drawn), name
        assert "@font-face" not in picture(name), name


def test_every_metric_stands_on_the_page_and_in_the_index_of_the_search(site):
    page = html.unescape((site / "reference/metrics.html").read_text())
    index = html.unescape((site / "search" / "search_index.json").read_text())
    for name in METRICS:
        assert f"<code>{name}</code>" in page
        assert name in index


def test_an_unknown_part_or_command_of_a_formula_is_an_error():
    with pytest.raises(ValueError, match=r"\\nosuchthing"):
        draw_formulas(r'<span class="arithmatex">\(\nosuchthing{x}\)</span>')
    assert "arithmatex" not in draw_formulas(r'<div class="arithmatex">\[\frac{a &lt; b}{2}\]</div>')
    assert set(PARTS) >= {"configuration", "options", "facts"}


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("runs.md", "../hgpo_gym/configs/trainer/default.yaml", "reference/configuration/trainer.md#trainer-default"),
        ("environments/webshop.md", "../../benchmarks/README.md#speed", "../benchmarks/README.md#speed"),
        ("benchmarks/README.md", "../docs/images/group_desktop.png", "../images/group_desktop.png"),
        ("benchmarks/README.md", "results/headline.csv", "results/headline.csv"),
        ("runs.md", "../hgpo_gym/files.py", "source/hgpo_gym/files.py.md"),
        ("faq.md", "guides/gpu_memory.md#the-formula", "guides/gpu_memory.md#the-formula"),
        ("index.md", "../README.md", "index.md"),
        ("runs.md", "nosuchfile.md", "nosuchfile.md"),
        ("runs.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_lead_to_where_the_site_has_the_file(page, link, expected):
    assert rewritten(page, f"[a]({link})") == f"[a]({expected})"


def test_the_examples_of_the_commands_are_valid():
    """`check_command` raises with the mistake."""
    for example in (example for examples in EXAMPLES.values() for example in examples if "=..." not in example):
        check_command(words(LAUNCHED.sub("hgpo-gym ", example)))


def test_pages_that_are_read_from_the_disk_fit_a_desk_and_a_phone(site, browser):
    from tests.checks.browser import look

    pages = ("index", "environments/webshop", "reference/configuration", "results/index", "benchmarks/index")
    for name, width in product((*pages, "results/generated/league"), (1280, 390)):
        finding = look(browser, site / f"{name}.html", width)
        outside = [url for url in finding.requests if not url.startswith("file:")]
        assert (finding.overflowing, finding.complaints, outside) == ([], [], []), f"{name} at {width}"


BOXES = """() => [...document.querySelectorAll(".md-typeset__scrollwrap")].map(box => {
    box.scrollLeft = box.scrollWidth;
    const cell = box.querySelector("tr:last-child > :last-child").getBoundingClientRect();
    return {shown: box.clientWidth, whole: box.scrollWidth, right: box.getBoundingClientRect().right, end: cell.right};
})"""


@pytest.mark.parametrize("name", ["index.html", "guides/inspecting.html"])
def test_tables_fit_a_desk_and_at_most_scroll_in_their_own_box_on_a_phone(site, browser, name):
    for width in (1280, 390):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto((site / name).as_uri())
        boxes = page.evaluate(BOXES)
        page.close()
        assert boxes
        assert all(box["right"] <= width and box["end"] <= width for box in boxes)
        assert width < 1280 or all(box["whole"] <= box["shown"] for box in boxes)


def test_formulas_show_and_the_search_finds_on_pages_that_are_read_from_the_disk(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "environments" / "webshop.html").as_uri())
    block, inline = (formula.bounding_box() for formula in page.locator("math").all())
    assert block["width"] > 400
    assert block["height"] > 30
    assert inline["width"] > 5
    page.locator("input[name=query]").click()
    page.keyboard.type("loss_constant")
    page.locator(".md-search-result__link", has_text="trainer").first.wait_for()
    page.close()


def test_the_readme_has_the_table_of_the_measurements():
    """`python -m benchmarks.headline readme` writes it."""
    assert rows("docs/methods") in (ROOT / "README.md").read_text()
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
