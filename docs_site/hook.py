"""Hooks of mkdocs, which calls them while it builds the site: mkdocs.yml names this file."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs_site.cards import cards, columns, families
from docs_site.creditbench import by_environment, leaderboard, quality_and_cost, validity
from docs_site.environments import environments, facts, options, splits
from docs_site.formulas import draw_formulas
from docs_site.groups import groups
from docs_site.groups_picture import PANELS
from docs_site.headline import headline, heat_map
from docs_site.league import league
from docs_site.links import BENCHMARKS, ROOT, linked_files, rewritten, site_path, source_page
from docs_site.metrics import metrics, warnings
from docs_site.pictures import GAMES, picture
from docs_site.reference import commands, configuration

PARTS: dict[str, Callable[[str], str]] = {
    "cards": cards,
    "columns": columns,
    "families": families,
    "commands": commands,
    "configuration": configuration,
    "creditbench": leaderboard,
    "creditbench_environments": by_environment,
    "creditbench_validity": validity,
    "environments": environments,
    "facts": facts,
    "headline": headline,
    "metrics": metrics,
    "options": options,
    "splits": splits,
    "warnings": warnings,
}
"""What `<!-- generated: NAME ARGUMENT -->` on a line of its own stands for: Markdown, made from the argument."""
GENERATED: Mapping[str, Callable[[], str]] = {
    f"environments/generated/{name}.svg": partial(picture, name) for name in GAMES
} | {
    **{f"methods/generated/{name}.svg": partial(groups, name) for name in PANELS},
    "methods/generated/creditbench.svg": quality_and_cost,
    "results/generated/headline.svg": heat_map,
    "results/generated/league.html": league,
}
"""Files that pages link to and no folder has, by their path on the site: SVG pictures and an HTML page."""
MARK = re.compile(r"^<!-- generated: (\S+) ?(.*?) -->$", flags=re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the benchmarks, the generated files, and the files of the repository that pages link to."""
    for page in sorted((ROOT / BENCHMARKS).glob("*.md")):
        files.append(_copied(config, page.relative_to(ROOT).as_posix()))
    for place, draw in GENERATED.items():
        files.append(File.generated(config, place, content=draw()))
    for path in sorted({path for page in files.documentation_pages() for path in _linked_by(page)}):
        place = site_path(path).partition("#")[0]
        if files.get_file_from_path(place):
            continue
        if place.startswith("source/"):
            content = source_page(path)
            files.append(File.generated(config, place, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
        else:
            files.append(_copied(config, path))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """Lead the links to where the site has what they mean, and put in the generated parts."""
    place = page.file.src_uri
    if place.startswith("source/"):
        return markdown
    return MARK.sub(lambda mark: PARTS[mark[1]](mark[2]), rewritten(place, markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    return draw_formulas(html)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the search's index as a script too: a page that is read from the disk cannot fetch JSON."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text()
    (folder / "search_index.js").write_text(f"var __index = {index}")


def _linked_by(page: File) -> list[str]:
    return [path for path in linked_files(page.src_uri, page.content_string) if not path.startswith("docs/")]


def _copied(config: MkDocsConfig, path: str) -> File:
    return File.generated(config, path, abs_src_path=str(ROOT / path))
