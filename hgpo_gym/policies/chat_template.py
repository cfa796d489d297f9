"""A tokenizer's chat template: a prompt as the user's turn, and what a template must do with it to be trained by."""

import datetime
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROMPTS = "prompt 7391, the first of two", "the second of two, prompt 2468"
_DATE_CODES = (*"aAbBcdDeFGhHIjmMpSuUVwWxXyY", "-d", "-m", "-y", "-j", "-H", "-I", "-M", "-S", "%")
_REMEDY = (
    "Set engine.chat_template_kwargs to what it needs, or save the tokenizer with a template of your own "
    "(chat_template.jinja)."
)


def render(
    tokenizer: "PreTrainedTokenizerBase", turns: list[dict[str, Any]], options: Mapping[str, Any], **more: Any
) -> str:
    """The turns of a chat as the tokenizer's template puts them.

    Args:
        tokenizer: has a chat template.
        turns: a `role` and its `content` each.
        options: `engine.chat_template_kwargs`.
        more: of `apply_chat_template`.

    Raises:
        ValueError: the template raises an error, whichever; or it is a set of named ones, none of them `default`.
    """
    template_of(tokenizer, options)
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, **{**more, **options}))
    except Exception as error:  # a template is a program of others
        shown = {name: value for name, value in options.items() if name != "chat_template"}
        raise ValueError(
            f"The chat template of {tokenizer.name_or_path!r} refuses a prompt as the user's turn, with "
            f"engine.chat_template_kwargs={shown}: {type(error).__name__}: {error}. {_REMEDY}"
        ) from error


def template_of(tokenizer: "PreTrainedTokenizerBase", options: Mapping[str, Any]) -> str:
    """The text of the template that is used. Raises ValueError where there are named ones, and none is chosen."""
    named = tokenizer.chat_template
    if isinstance(named, dict) and "default" not in named and "chat_template" not in options:
        raise ValueError(
            f"The tokenizer of {tokenizer.name_or_path!r} has several chat templates, {', '.join(named)}, and none is "
            "called default. Choose one: engine.chat_template_kwargs={chat_template: NAME}."
        )
    return tokenizer.get_chat_template(options.get("chat_template"))


def shows_date(template: str) -> bool:
    """Whether a template asks for the present day, as Llama 3.2's does."""
    return "strftime_now" in template


def at_date(tokenizer: "PreTrainedTokenizerBase", options: Mapping[str, Any], date: str | None) -> dict[str, Any]:
    """The options with a template for which it is always the same day, where it asks for it.

    Args:
        tokenizer: has a chat template.
        options: `engine.chat_template_kwargs`.
        date: the day, like 2026-11-28; None takes today.

    Raises:
        ValueError: the date is none; or see `template_of`.
    """
    template, day = template_of(tokenizer, options), parse_date(date)
    if not shows_date(template):
        return dict(options)
    codes = {f"%{code}": day.strftime(f"%{code}") for code in _DATE_CODES}
    # transformers hands templates no functions, so that a macro stands in for its own; the line break is not written.
    macro = (
        "{% macro strftime_now(format) %}{% set now = namespace(text=format) %}"
        f"{{% for code, text in {json.dumps(codes)}.items() %}}"
        "{% set now.text = now.text.replace(code, text) %}{% endfor %}{{ now.text }}{% endmacro %}\n"
    )
    return {**options, "chat_template": macro + template}


def parse_date(date: str | None) -> datetime.date:
    """The day of `engine.template_date`; today without one. Raises ValueError."""
    if date is None:
        return datetime.date.today()
    try:
        return datetime.date.fromisoformat(date)
    except ValueError:
        raise ValueError(f"engine.template_date={date!r}: write a day like 2026-11-28, or null for today.") from None


def check_prompts(
    tokenizer: "PreTrainedTokenizerBase",
    turn_of: Callable[[Any], str],
    ids_of: Callable[[str], Sequence[int]],
    ends: Collection[int],
) -> None:
    """Check that prompts reach the model.

    Args:
        tokenizer: for its name.
        turn_of: a prompt as the user's turn.
        ids_of: the tokens of a prompt.
        ends: the tokens that end an answer.

    Raises:
        ValueError: a prompt is not in its turn word for word, and once; two prompts have the same tokens; or a prompt
            ends with a token that ends answers, so that the model would write on after an end.
    """
    one, other = _PROMPTS
    source = f"The chat template of {tokenizer.name_or_path!r}"
    if (times := turn_of(one).count(one)) != 1:
        parts = not times and _takes_parts(turn_of, one)
        why = " It reads prompts in parts alone, as for images." if parts else ""
        raise ValueError(f"{source} puts a prompt {times} times into the user's turn, and not once.{why} {_REMEDY}")
    ids = list(ids_of(one))
    if ids == list(ids_of(other)):
        raise ValueError(f"The tokenizer of {tokenizer.name_or_path!r} has the same tokens for two different prompts.")
    if ids[-1] in ends:
        raise ValueError(
            f"{source} ends a prompt with {tokenizer.convert_ids_to_tokens(ids[-1])} ({ids[-1]}), which ends answers: "
            f"it does not begin one (add_generation_prompt). {_REMEDY}"
        )


def _takes_parts(turn_of: Callable[[Any], str], prompt: str) -> bool:
    try:
        return prompt in turn_of([{"type": "text", "text": prompt}])
    except ValueError:
        return False


def appended_tokens(tokenizer: "PreTrainedTokenizerBase") -> int:
    """How many tokens the tokenizer puts after a text by itself, such as the end of text by `add_eos_token`: a prompt
    goes on, and has none of them."""
    text, whole = (tokenizer(_PROMPTS[0], add_special_tokens=special)["input_ids"] for special in (False, True))
    added = len(whole) - len(text)
    return next((added - before for before in range(added, 0, -1) if whole[before:][: len(text)] == text), added)
