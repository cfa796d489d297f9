"""Chat templates that show the date: a run has one day, and the same tokens ever after."""

import datetime
import io
from datetime import date

import pytest
import transformers.utils.chat_template_utils as transformers_templates
from rich.console import Console

from hgpo_gym.config.of_run import load_evaluation
from hgpo_gym.experiments.plan import plan
from hgpo_gym.policies import chat_template
from hgpo_gym.policies.huggingface import make_tiny_model, save_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import read_config
from hgpo_gym.trainers import template_date
from hgpo_gym.trainers.run import Run
from hgpo_gym.trainers.settings import RunSettings
from tests.support.small_runs import settings

DATED = (
    "{% macro header() %}Today: {{ strftime_now('%d %b %Y') }} (day %-j){{ strftime_now(format='%%') }}{% endmacro %}"
    "  {{ header() }}\n{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
)


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """A model and its tokenizer, whose chat template shows the date, and the folder that they are in."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(["You act in a text world. Today: 28 Nov 2026"] * 3, 300)
    tokenizer.chat_template = DATED
    model = make_tiny_model(tokenizer, hidden_size=32, layers=1, heads=2, seed=0, device="cpu")
    save_model(model, tokenizer, folder)
    return model, tokenizer, folder


@pytest.fixture
def clock(monkeypatch):
    """Sets the day for this package and for transformers."""

    def set_to(*day):
        class Day(date):
            @classmethod
            def today(cls):
                return date(*day)

        class Moment(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.datetime(*day)

        for module in (template_date, chat_template):
            monkeypatch.setattr(module.datetime, "date", Day)
        monkeypatch.setattr(transformers_templates, "datetime", Moment)

    return set_to


def prompt(policy):
    return policy.tokenizer.decode(policy.encode_prompts(["Hall."])[0])


def test_a_policy_has_one_day_and_the_template_says_it_as_it_would_then(dated, clock):
    model, tokenizer, _ = dated
    clock(2027, 3, 4)
    policy = LanguageModelPolicy(model, tokenizer, constrain="none")
    turn = [{"role": "user", "content": "Hall."}]
    expected = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert prompt(policy) == expected == "  Today: 04 Mar 2027 (day %-j)%\n<user>Hall.<assistant>"
    clock(2031, 1, 2)
    assert prompt(policy) == expected
    assert prompt(LanguageModelPolicy(model, tokenizer, constrain="none")).startswith("  Today: 02 Jan 2031")
    assert prompt(LanguageModelPolicy(model, tokenizer, template_date="2027-03-04", constrain="none")) == expected
    assert tokenizer.chat_template == DATED  # what is saved knows its day as before
    with pytest.raises(ValueError, match=r"engine.template_date='4 March': write a day like 2026-11-28"):
        LanguageModelPolicy(model, tokenizer, template_date="4 March", constrain="none")


def test_a_run_keeps_its_day_when_it_goes_on_and_is_evaluated_and_compared(dated, clock, tmp_path):
    maze = ["model=pretrained", f"model.path={dated[2]}", "prompt=bare", "trainer.iterations=1", "trainer.kl_coef=0"]
    lines = []
    for day in ((2027, 3, 4), (2031, 1, 2)):
        clock(*day)
        output = io.StringIO()
        run = Run(settings(tmp_path / "run", "resume=auto", base=maze), Progress(Console(file=output, width=200)))
        with run:
            assert prompt(run.learner.policy).startswith("  Today: 04 Mar 2027")
        lines += [line for line in output.getvalue().splitlines() if "template_date" in line]
        assert read_config(tmp_path / "run")["engine"]["template_date"] == "2027-03-04"
    assert (
        lines == ["The chat template shows the date: for this run it is always 2027-03-04 (engine.template_date)."] * 2
    )
    for more in ([], ["engine=vllm"]):
        evaluated = RunSettings.parse(load_evaluation([f"run={tmp_path}/run", *more]))
        assert evaluated.engine.options["template_date"] == "2027-03-04"
    with pytest.raises(ValueError, match=r"engine.template_date: '2027-03-04' in the run, '2030-01-01' now"):
        Run(settings(tmp_path / "run", "resume=auto", "engine.template_date='2030-01-01'", base=maze), Progress())

    begun, *others = plan(["grpo", "gigpo"], [0], tmp_path / "compared", maze)
    assert {run.settings.engine.options["template_date"] for run in (begun, *others)} == {"2031-01-02"}
    with Run(begun.settings, Progress()):
        pass
    clock(2031, 1, 3)
    for run in plan(["gigpo", "grpo"], [0], tmp_path / "compared", maze):
        assert run.settings.engine.options["template_date"] == "2031-01-02"
        assert 'engine.template_date="2031-01-02"' in run.overrides


def test_where_no_prompt_shows_the_day_none_is_kept():
    for base in ([], ["model=tiny"]):
        run = settings("runs/none", **({"base": base} if base else {}))
        assert template_date.date_of(run.engine, run.run_dir, run.model) is None
