"""Reports: the same numbers in every format, and messages where runs do not suffice."""

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import yaml
from rich.console import Console

from benchmarks import pass_at_k
from hgpo_gym.analysis.report import figures, standings, write_report
from hgpo_gym.analysis.report.load import comparisons, load_runs
from hgpo_gym.cli.main import main
from tests.support.commands import run as run_command
from tests.support.small_runs import finished, numbers, train, train_until


@pytest.fixture(scope="module")
def runs(tmp_path_factory, pictures):
    """Two algorithms with three seeds each, and the report on them."""
    folder = tmp_path_factory.mktemp("runs")
    for algo in ("gigpo", "hgpo"):
        for seed in range(3):
            finished(folder / f"{algo}-seed{seed}", f"algo={algo}", f"seed={seed}")
    with pictures():
        write_report([folder], folder)
    return folder


@pytest.fixture(scope="module")
def page(runs):
    return parse((runs / "report.html").read_text())


class Page(HTMLParser):
    """The tables of a page, by id: rows of cells, the header first. All its text, and every attribute."""

    def __init__(self):
        super().__init__()
        self.tables, self.text, self.attributes, self._cell = {}, "", [], None

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag == "table":
            self._rows = self.tables[dict(attributes)["id"]] = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._cell = self._rows[-1]

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data):
        self.text += data
        if self._cell is not None:
            self._cell[-1] += data


def parse(html):
    page = Page()
    page.feed(html)
    return page


def read_csv(path):
    with path.open() as file:
        return list(csv.reader(file))


def test_the_lines_of_twenty_algorithms_differ():
    looks = figures.styles(f"algorithm {number}" for number in range(20)).values()
    assert len({tuple(look.values()) for look in looks}) == 20


def test_csv_has_the_numbers_of_the_runs(runs):
    header, *rows = read_csv(runs / "tables" / "runs.csv")
    for row in rows:
        values = dict(zip(header, row, strict=True))
        run = runs / f"{values['algorithm']}-seed{values['seed']}"
        summary = json.loads((run / "summary.json").read_text())
        steps = [json.loads(line)["steps"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert float(values["final"]) == summary["success_after"]
        assert float(values["environment steps"]) == sum(steps)
        assert values["directory"] == str(run)
    assert len(rows) == 6
    finals = [float(row[header.index("final")]) for row in rows if row[0] == "hgpo"]
    table = dict(zip(*read_csv(runs / "tables" / "final_success.csv")[::2], strict=True))
    assert table["algorithm"] == "hgpo"
    assert float(table["final"]) == pytest.approx(np.mean(finals)), "three runs: the middle half is all of them"
    assert (float(table["lowest"]), float(table["highest"])) == (min(finals), max(finals))


def test_csv_equals_the_numbers_in_html(runs, page):
    """Every number of every CSV table stands in the cell of its HTML table, rounded."""
    compared = 0
    for path in sorted((runs / "tables").glob("*.csv")):
        header, *rows = read_csv(path)
        titles, *cells = page.tables[path.stem]
        assert len(rows) == len(cells)
        for row, shown in zip(rows, cells, strict=True):
            values = dict(zip(header, row, strict=True))
            for title, cell in zip(titles, shown, strict=True):
                parts = [values[name] for name in (title, f"{title}, low", f"{title}, high") if values.get(name)]
                if not parts or not re.fullmatch(r"-?[\d.]+(e-?\d+)?", parts[0]):
                    assert cell in (values[title], "never", "-"), (path.stem, title)
                    continue
                numbers = [float(number.replace(",", "")) for number in re.findall(r"-?[\d.,]*\d(?:e-\d+)?", cell)]
                scale = 100 if "%" in cell or "points" in title or "between" in title or "error" in title else 1
                expected = [scale * float(part) for part in parts]
                if "no spread" in cell:
                    assert len(set(expected)) == 1
                    expected = expected[:1]
                rounding = 0.5 if title.endswith(", a run") else 0.051  # totals of a run are shown as whole numbers
                assert numbers == pytest.approx(expected, rel=0.06, abs=rounding), (path.stem, title)
                compared += len(numbers)
    assert compared > 100


def test_markdown_has_the_cells_of_the_html(runs, page):
    text = (runs / "report.md").read_text()
    for rows in page.tables.values():
        for row in rows:
            assert f"| {' | '.join(row)} |" in text
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert (runs / target).exists()


def test_the_page_asks_for_nothing(page):
    for tag, name, value in page.attributes:
        if name in ("src", "href", "srcset", "action"):
            assert value.startswith(("data:image/svg+xml;base64,", "#")), (tag, name)
    assert "script" not in {tag for tag, _, _ in page.attributes}


def test_the_page_says_how_to_make_the_runs_again(page):
    assert '"hgpo_gym"' not in page.text
    assert "What differs" not in page.text
    assert "hgpo_gym 0.1.0, torch" in page.text
    assert "rollout.group_size=4" in page.text
    assert 'hgpo: algo.name="hgpo" algo.gamma=0.95' in page.text


def test_the_same_runs_give_the_same_files(runs, tmp_path, pictures):
    with pictures():
        write_report([runs], tmp_path)
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")]
    assert len(files) > 20
    for file in files:
        assert (tmp_path / file).read_bytes() == (runs / file).read_bytes(), file


def test_one_training_seed_gets_no_interval_and_a_warning(runs, tmp_path):
    write_report([runs / "gigpo-seed0", runs / "hgpo-seed0"], tmp_path)
    alone = parse((tmp_path / "report.html").read_text())
    assert "not comparable with one training seed" in alone.text
    header, row, _ = read_csv(tmp_path / "tables" / "final_success.csv")
    assert dict(zip(header, row, strict=True))["final, low"] == ""
    _, seeds, _ = alone.tables["seeds"]
    assert seeds[3] == "-", "no spread between training seeds from one"
    assert seeds[4] != "-", "two decoding seeds do tell"
    assert " to " not in alone.tables["final_success"][1][3]


def test_runs_with_other_settings_are_compared_apart(runs, tmp_path):
    for seed in range(2):
        finished(tmp_path / f"other{seed}", "algo=hgpo", f"seed={seed}", "rollout.group_size=2")
    write_report([runs, tmp_path], tmp_path / "out", threshold=1.0)
    text = (tmp_path / "out" / "report.md").read_text()
    assert "## signpost_maze, split test, rollout.group_size=4" in text
    assert "## signpost_maze, split test, rollout.group_size=2" in text
    assert "## All comparisons" in text
    header, *rows = read_csv(tmp_path / "out" / "tables" / "overview.csv")
    seeds = {(row[0], row[1]): row[header.index("training seeds")] for row in rows}
    assert seeds["all 2 together", "hgpo"] == "5"
    assert ("all 2 together", "gigpo") not in seeds


def test_together_algorithms_are_judged_at_the_seeds_that_they_share(runs, tmp_path):
    """Else one that lacks its runs of a hard setting looks the better one."""
    for seed in (1, 2, 7):
        for algo in ("gigpo", "hgpo") if seed < 7 else ("gigpo",):
            finished(tmp_path / f"{algo}{seed}", f"algo={algo}", f"seed={seed}", "rollout.group_size=2")
    write_report([runs, tmp_path], tmp_path / "out")
    header, *rows = read_csv(tmp_path / "out" / "tables" / "overview.csv")
    seeds = {tuple(row[:2]): row[header.index("training seeds")] for row in rows}
    together = [seeds["all 2 together", algo] for algo in ("gigpo", "hgpo")]
    assert together == ["5", "5"]
    apart = comparisons(load_runs([runs, tmp_path])[0])
    assert [len(comparison.runs["gigpo"]) for comparison in apart] == [3, 3]


def test_where_no_seed_is_shared_the_report_says_why_nothing_stands_together(runs, tmp_path):
    for algo, seed in (("gigpo", 1), ("hgpo", 2)):
        finished(tmp_path / algo, f"algo={algo}", f"seed={seed}", "rollout.group_size=2")
    write_report([runs, tmp_path], tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    apart = "signpost_maze, split test, rollout.group_size=2"
    why = f"They are missing, because no seed was run with all algorithms in {apart}."
    assert why in text
    assert "all 2 together" not in text


def test_runs_that_won_equally_often_are_equal(runs):
    """Whatever the order, which a sum of floating-point numbers depends on."""
    (run, *_), _ = load_runs([runs])
    shares = [0.5, 0.8, 0.9, 0.6], [0.7, 1.0, 0.7, 0.4]
    assert np.mean(shares[0]) != np.mean(shares[1])
    one, other = (replace(run, metrics=tuple({"success": share} for share in series)) for series in shares)
    assert one.success_while_training == other.success_while_training
    equal = [np.array([0.1 + 0.2, 0.5]), np.array([0.3, 0.5])]
    np.testing.assert_array_equal(standings.mean_ranks([equal]).value, [1.5, 1.5])


def test_time_to_a_threshold_is_by_evaluations_that_all_have(runs):
    (comparison,) = comparisons(load_runs([runs])[0])
    run = comparison.runs["gigpo"][0]
    assert run.until_threshold(0.0, [run.final["iteration"]])[0] == run.final["iteration"]
    assert run.until_threshold(0.0, comparison.evaluated_iterations)[0] == 0


def test_labels_of_variants_of_an_algorithm_have_their_options(runs, tmp_path):
    train(tmp_path / "one", "algo=hgpo", "algo.history_length=0")
    (one,) = comparisons(load_runs([runs, tmp_path])[0])
    assert list(one.runs) == ["gigpo", "hgpo K=None", "hgpo K=0"]
    assert [len(of_label) for of_label in one.runs.values()] == [3, 3, 1]


def test_a_run_does_not_count_twice(runs, tmp_path):
    finished(tmp_path / "again", "algo=hgpo", "seed=1")
    assert len(load_runs([runs, runs / "hgpo-seed1"])[0]) == 6
    with pytest.raises(ValueError, match=r"again hold the same run \(hgpo, seed 1"):
        write_report([runs, tmp_path], tmp_path / "out")


def test_an_evaluation_beside_a_run_counts_as_another_split(tmp_path):
    finished(tmp_path / "run")
    beside = tmp_path / "run" / "evaluation_train.json"
    main(["eval", "evaluation.split=train", f"run={tmp_path / 'run'}", f"out={beside}"])
    write_report([tmp_path / "run"], tmp_path / "out")
    _, *rows = read_csv(tmp_path / "out" / "tables" / "success_by_task_type.csv")
    assert [row[:2] for row in rows] == [["test", "all"], ["train", "all"]]
    assert float(rows[1][2]) == json.loads(beside.read_text())["success"]


@pytest.mark.filterwarnings("ignore:.*generated")
def test_runs_whose_data_differ_are_not_compared_and_none_goes_on_with_other_tasks(tmp_path, webshop_data, monkeypatch):
    """A run takes the first existing split of a list: the settings are equal, the tasks are not."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    base = ["env=webshop", "model=tabular", "rollout.num_tasks=2", "rollout.group_size=2", "env.max_episode_steps=3",
            "trainer.iterations=1", "evaluation.tasks=2", "evaluation.decoding_seeds=1"]  # fmt: skip
    monkeypatch.setenv("WEBSHOP_DATA", str(webshop_data))
    train(tmp_path / "runs" / "grpo", "algo=grpo", base=base)
    monkeypatch.delenv("WEBSHOP_DATA")
    train(tmp_path / "runs" / "hgpo", "algo=hgpo", base=base)
    apart = comparisons(load_runs([tmp_path / "runs"])[0])
    assert [comparison.title for comparison in apart] == [
        "webshop, split validation", "webshop, split generated_test",
    ]  # fmt: skip
    state = (tmp_path / "runs" / "grpo" / "metrics.jsonl").read_text()
    with pytest.raises(ValueError, match=r"tasks for training: .* of split train, .* 1,600 of split generated"):
        train(tmp_path / "runs" / "grpo", "algo=grpo", "trainer.iterations=2", "resume=auto", base=base)
    assert (tmp_path / "runs" / "grpo" / "metrics.jsonl").read_text() == state


def test_runs_that_trained_on_other_games_are_apart(tmp_path):
    for name in ("grpo", "gigpo", "hgpo"):
        finished(tmp_path / name, f"algo={name}")
    path = tmp_path / "gigpo" / "summary.json"
    summary = json.loads(path.read_text())
    summary["tasks"]["training"] |= {"split": "other", "tasks": 3}
    path.write_text(json.dumps(summary))
    apart = comparisons(load_runs([tmp_path])[0])
    assert sorted(sorted(comparison.runs) for comparison in apart) == [["gigpo"], ["grpo", "hgpo"]]
    assert len({comparison.title for comparison in apart}) == 2
    assert "tasks=other (3)" in " ".join(comparison.title for comparison in apart)


def test_pass_at_k_is_shown_where_every_run_has_it(tmp_path, capsys):
    for seed in (0, 1):
        finished(tmp_path / "runs" / f"seed{seed}", f"seed={seed}")
    write_report([tmp_path / "runs"], tmp_path / "out")
    header, row = read_csv(tmp_path / "out" / "tables" / "pass_at_k.csv")
    shown = [float(row[header.index(name)]) for name in ("pass@1", "pass@2")]
    ends = [json.loads((tmp_path / "runs" / f"seed{seed}" / "summary.json").read_text()) for seed in (0, 1)]
    assert shown == [pytest.approx(np.mean([end["evaluations"][-1]["pass_at_k"][k] for end in ends])) for k in "12"]
    pass_at_k.main([str(tmp_path / "runs"), "--baseline", "hgpo", "--to", str(tmp_path / "kept.csv")])
    assert f"pass@2 of hgpo: {100 * shown[1]:.1f}" in capsys.readouterr().out
    lines = read_csv(tmp_path / "kept.csv")
    assert lines[0] == ["algorithm", "seed", "iteration", "pass@1", "pass@2"]
    assert float(lines[-1][4]) == round(ends[1]["evaluations"][-1]["pass_at_k"]["2"], 4)
    with pytest.raises(ValueError, match="Unknown algorithm 'grpo'"):
        pass_at_k.main([str(tmp_path / "runs")])
    summary = tmp_path / "runs" / "seed1" / "summary.json"
    for evaluation in ends[1]["evaluations"]:
        del evaluation["pass_at_k"]
    summary.write_text(json.dumps(ends[1]))
    write_report([tmp_path / "runs"], tmp_path / "older")
    assert not (tmp_path / "older" / "tables" / "pass_at_k.csv").exists()


def test_a_report_leaves_no_file_of_an_earlier_one_and_takes_no_other(runs, tmp_path):
    write_report([runs], tmp_path)
    (tmp_path / "tables" / "mine.csv").write_text("kept")
    (tmp_path / "mine.txt").write_text("kept")
    with (tmp_path / ".report_files").open("a") as file:
        file.write("\nmine.txt\nfigures/../mine.txt")
    write_report([runs / "hgpo-seed1"], tmp_path)
    assert not (tmp_path / "tables" / "probability_of_improvement.csv").exists()
    assert not (tmp_path / "figures" / "improvement_in_the_end.png").exists()
    write_report([runs / "hgpo-seed1"], tmp_path / "fresh")
    fresh = {path.relative_to(tmp_path / "fresh") for path in (tmp_path / "fresh").rglob("*")}
    left = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if "fresh" not in path.parts}
    assert {str(path) for path in left - fresh} == {"tables/mine.csv", "mine.txt"}


def test_custom_learners_are_reported_by_name(runs, tmp_path):
    for seed in (0, 1):
        shutil.copytree(runs / f"hgpo-seed{seed}", tmp_path / "runs" / f"hgpo-seed{seed}")
        shutil.copytree(runs / f"gigpo-seed{seed}", custom := tmp_path / "runs" / f"mine-seed{seed}")
        config = yaml.safe_load((custom / "config.yaml").read_text())
        config |= {"learner": {"name": "evolution"}, "algo": {"name": "mine"}}
        (custom / "config.yaml").write_text(yaml.safe_dump(config))
    write_report([tmp_path / "runs"], tmp_path / "out")
    text = " ".join((tmp_path / "out" / "report.md").read_text().split())
    assert "mine: by the learner evolution, whose update is its own; not with the others' credit and update." in text
    assert "with a network of its own" not in text


def test_unfinished_runs_are_named_and_nothing_finished_is_an_error(runs, tmp_path, capsys):
    finished(tmp_path / "done")
    finished(tmp_path / "broken", "seed=1")
    (tmp_path / "broken" / "summary.json").unlink()
    write_report([tmp_path], tmp_path / "out")
    assert f"Runs that are not finished: {tmp_path / 'broken'}." in (tmp_path / "out" / "report.md").read_text()
    assert "Runs that are not finished: " in run_command(capsys, "report", tmp_path, "--out", tmp_path / "shown")[1]
    with pytest.raises(FileNotFoundError, match=r"No finished run in .*broken: expected summary\.json"):
        write_report([tmp_path / "broken"], tmp_path / "out")
    with pytest.raises(ValueError, match=r"threshold=80: a share .* \(0.8 is 80 %\)"):
        write_report([runs], tmp_path / "out", threshold=80)


def test_a_run_that_is_being_extended_is_not_finished_until_its_new_end(tmp_path, capsys):
    runs, broken, of_broken = tmp_path / "runs", tmp_path / "runs" / "grpo-seed1", ["algo=grpo", "seed=1"]
    for algo, seed in (("grpo", 0), ("hgpo", 0), ("hgpo", 1)):
        finished(runs / f"{algo}-seed{seed}", f"algo={algo}", f"seed={seed}")
    train(broken, *of_broken, "trainer.iterations=2")
    train_until(3, broken, *of_broken, "resume=auto")
    ended, unfinished = load_runs([runs])
    assert {(run.path.name, len(run.metrics)) for run in ended} == {
        ("grpo-seed0", 4),
        ("hgpo-seed0", 4),
        ("hgpo-seed1", 4),
    }
    assert unfinished == [broken]
    write_report([runs], tmp_path / "out")
    assert f"Runs that are not finished: {broken}." in (tmp_path / "out" / "report.md").read_text()
    assert "3 of 4 iterations, not finished" in " ".join(run_command(capsys, "health", broken)[1].split())
    with pytest.raises(FileNotFoundError, match=r"expected summary\.json, with the iterations of config\.yaml"):
        load_runs([broken])
    train(broken, *of_broken, "resume=auto")
    (comparison,) = comparisons(load_runs([runs])[0])
    assert {label: [len(run.metrics) for run in of_label] for label, of_label in comparison.runs.items()} == {
        "grpo": [4, 4], "hgpo": [4, 4]
    }  # fmt: skip


def test_text_of_runs_is_escaped(tmp_path):
    finished(tmp_path / "a <b>run</b>")
    write_report([tmp_path], tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text()
    assert "a &lt;b&gt;run&lt;/b&gt;" in html
    assert "<b>" not in html


def test_the_command_writes_into_the_folder_of_runs(runs, tmp_path, capsys):
    folder = shutil.copytree(runs, tmp_path / "runs")
    (folder / "report.html").unlink()
    main(["report", str(folder), "--threshold", "0.5"])
    shown = capsys.readouterr().out.replace("\n", "")
    assert shown.endswith(f"Report: {folder / 'report.html'}")
    assert "gigpo and hgpo, 3 training seeds each" in shown
    assert "Time to 50 %" in (folder / "report.html").read_text()
    main(["report", str(folder)])


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_a_desk_and_a_phone_in_a_browser(runs, browser, width):
    from tests.checks.browser import Finding, look  # needs playwright, like the browser

    assert look(browser, runs / "report.html", width) == Finding([], [], [])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """An agent by itself, a recipe that plays groups anew, and a team; what the terminal shows of them."""
    folder = tmp_path_factory.mktemp("mixed")
    kinds = {
        "alone": ["algo=grpo"],
        "recipe": ["recipe=dapo_short", "sampler.rounds=3"],
        "team": ["algo=grpo", "team=planner_actor", "team.every=2", "team.plans=[red,blue,green]"],
    }
    for name, options in kinds.items():
        for seed in range(2):
            finished(folder / f"{name}-seed{seed}", *options, f"seed={seed}")
    shown = Console(file=io.StringIO(), width=300)
    write_report([folder], folder, console=shown)
    return folder, shown.file.getvalue()


def test_a_report_says_what_recipes_and_teams_set_in_every_format(mixed):
    folder, shown = mixed
    texts = [
        shown,
        (folder / "report.md").read_text().replace("\\", ""),
        parse((folder / "report.html").read_text()).text,
    ]
    for text in texts:
        assert "What differs" in text
        assert "objective.clip_high=0.28" in text
        assert 'sampler.name="dynamic"' in text
        assert 'team.name="planner_actor"' in text
        assert "algo.norm" not in text.partition("What differs")[2].partition("Final success")[0]


def test_a_report_shows_what_was_played_beside_what_was_kept(mixed):
    folder, shown = mixed
    header, *rows = parse((folder / "report.html").read_text()).tables["played"]
    assert header[1:] == [
        "environment steps, a run", "episodes, a run", "generated tokens, a run", "rounds, an iteration",
        "groups kept, an iteration", "steps kept, a run", "optimiser steps, a run",
    ]  # fmt: skip
    assert "Played and kept" in shown
    totals = {row[0]: [float(cell.replace(",", "")) for cell in row[1:]] for row in rows}
    (recipe,) = [values for label, values in totals.items() if "dynamic" in label]
    (team,) = [values for label, values in totals.items() if "planner" in label]
    (alone,) = [values for label, values in totals.items() if "dynamic" not in label and "planner" not in label]
    runs = [numbers(folder / f"recipe-seed{seed}") for seed in range(2)]
    assert recipe[1] == np.mean([sum(line["episodes"] for line in run) for run in runs]) > alone[1] == 4 * 8
    assert recipe[5] < recipe[0]
    assert alone[0] == alone[2] == alone[5]
    assert team[2] == team[5] > team[0]


@pytest.mark.parametrize(
    ("how", "size", "expected"),
    [
        ("drop", 8, "With trainer.zero_advantage=mask and trainer.mini_batch_size=null"),
        ("mask", "null", ""),
        ("mask", 1, ""),
        ("keep", 8, ""),
    ],
)
def test_a_report_says_where_one_algorithm_makes_more_optimiser_steps(tmp_path, how, size, expected):
    """REINFORCE++ takes something off over the whole batch, so that no response of its is without an advantage."""
    options = ["seed=1", "env.max_episode_steps=9", f"trainer.zero_advantage={how}", f"trainer.mini_batch_size={size}"]
    for algo in ("grpo", "reinforce_pp"):
        train(tmp_path / algo, f"algo={algo}", *options)
    write_report([tmp_path], tmp_path)
    page = parse((tmp_path / "report.html").read_text())
    made = {
        name: sum(line["optimizer_steps"] for line in numbers(tmp_path / name)) for name in ("grpo", "reinforce_pp")
    }
    assert (made["reinforce_pp"] > 1.25 * made["grpo"]) is bool(expected)
    sentence = f"from {made['grpo']} a run of grpo to {made['reinforce_pp']} of reinforce_pp"
    assert (f"Optimiser steps differ, {sentence}" in page.text) is bool(expected)
    assert expected in page.text
    header, *rows = page.tables["played"]
    assert {row[0]: int(row[header.index("optimiser steps, a run")]) for row in rows} == made


@pytest.mark.parametrize("setting", ["trainer.zero_advantage=keep", "trainer.kl_coef=0.1"])
def test_unequal_optimiser_steps_where_nothing_is_left_out_come_from_unequal_numbers_of_responses(tmp_path, setting):
    for name, overrides in {"all": [], "two_of_four": ["sampler=pods", "sampler.keep=2"]}.items():
        train(tmp_path / name, "algo=grpo", setting, "trainer.mini_batch_size=8", *overrides)
    write_report([tmp_path], tmp_path)
    page = parse((tmp_path / "report.html").read_text())
    assert "Optimiser steps differ" in page.text
    assert "the algorithms learned from different numbers of responses" in page.text


def test_success_at_equal_cost_lies_between_evaluations_at_the_least_that_was_played(mixed):
    folder, shown = mixed
    (comparison,) = comparisons(load_runs([folder])[0])
    assert comparison.costs == ["steps", "episodes", "tokens"]
    assert "At equal cost" in shown
    for run in comparison.all_runs:
        at = {0: 0.0} | dict(enumerate(np.cumsum(run.curve("episodes")), start=1))
        expected = np.interp(  # 32 is what the agent by itself has played in all
            32, [at[one["iteration"]] for one in run.evaluations], [one["success"] for one in run.evaluations]
        )
        assert run.success_within("episodes", 32) == expected
    assert run.success_within("episodes", 1e9) == run.final_success
    header, *rows = parse((folder / "report.html").read_text()).tables["at_equal_cost"]
    assert header[2] == "32 episodes"
    assert len(rows) == 3
