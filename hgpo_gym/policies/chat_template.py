"""A tokenizer's chat template: it renders a prompt as the user's turn. Checks that training can use it."""

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
    """Return the turns of a chat, rendered by the tokenizer's template.

    Args:
        tokenizer: has a chat template.
        turns: a `role` and its `content` each.
        options: `engine.chat_template_kwargs`.
        more: of `apply_chat_template`.

    Raises:
        ValueError: the template raises an error; or there are several named ones, none of them `default`.
    """
    template_of(tokenizer, options)
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, **{**more, **options}))
    except Exception as error:  # a template is foreign code: it may raise anything
        shown = {name: value for name, value in options.items() if name != "chat_template"}
        raise ValueError(
            f"The chat template of {tokenizer.name_or_path!r} refuses a prompt as the user's turn, with "
            f"engine.chat_template_kwargs={shown}: {type(error).__name__}: {error}. {_REMEDY}"
        ) from error


def template_of(tokenizer: "PreTrainedTokenizerBase", options: Mapping[str, Any]) -> str:
    """Return the text of the template in use. Raises ValueError if there are several named ones and none is chosen."""
    named = tokenizer.chat_template
    if isinstance(named, dict) and "default" not in named and "chat_template" not in options:
        raise ValueError(
            f"The tokenizer of {tokenizer.name_or_path!r} has several chat templates, {', '.join(named)}, and none is "
            "called default. Choose one: engine.chat_template_kwargs={chat_template: NAME}."
        )
    return tokenizer.get_chat_template(options.get("chat_template"))


def shows_date(template: str) -> bool:
    """Return True if a template shows the present day, as Llama 3.2's does."""
    return "strftime_now" in template


def at_date(tokenizer: "PreTrainedTokenizerBase", options: Mapping[str, Any], date: str | None) -> dict[str, Any]:
    """Return the options with a template whose day is fixed, if it shows the day.

    Args:
        tokenizer: has a chat template.
        options: `engine.chat_template_kwargs`.
        date: the day, like 2026-11-28; None takes today.

    Raises:
        ValueError: not a date; or see `template_of`.
    """
    template, day = template_of(tokenizer, options), parse_date(date)
    if not shows_date(template):
        return dict(options)
    codes = {f"%{code}": day.strftime(f"%{code}") for code in _DATE_CODES}
    # transformers passes no functions to templates, so that a macro replaces its strftime_now. transformers
    # sets trim_blocks: the line break after the macro is not rendered.
    macro = (
        "{% macro strftime_now(format) %}{% set now = namespace(text=format) %}"
        f"{{% for code, text in {json.dumps(codes)}.items() %}}"
        "{% set now.text = now.text.replace(code, text) %}{% endfor %}{{ now.text }}{% endmacro %}\n"
    )
    return {**options, "chat_template": macro + template}


def parse_date(date: str | None) -> datetime.date:
    """Return the day of `engine.template_date`; today for None. Raises ValueError."""
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
    end_token_ids: Collection[int],
) -> None:
    """Check that prompts reach the model unchanged.

    Args:
        tokenizer: for its name.
        turn_of: renders a prompt as the user's turn.
        ids_of: returns the tokens of a prompt.
        end_token_ids: the tokens that end a response.

    Raises:
        ValueError: the turn does not contain the prompt verbatim and once; two prompts have the same tokens; or a
            prompt ends with a token that ends responses, so that the model would write on after an end.
    """
    first, second = _PROMPTS
    source = f"The chat template of {tokenizer.name_or_path!r}"
    if (times := turn_of(first).count(first)) != 1:
        parts = not times and _takes_parts(turn_of, first)
        why = " It reads prompts in parts alone, as for images." if parts else ""
        raise ValueError(f"{source} puts a prompt {times} times into the user's turn, and not once.{why} {_REMEDY}")
    ids = list(ids_of(first))
    if ids == list(ids_of(second)):
        raise ValueError(f"The tokenizer of {tokenizer.name_or_path!r} has the same tokens for two different prompts.")
    if ids[-1] in end_token_ids:
        raise ValueError(
            f"{source} ends a prompt with {tokenizer.convert_ids_to_tokens(ids[-1])} ({ids[-1]}), which ends responses "
            f"and does not begin one (add_generation_prompt). {_REMEDY}"
        )


def _takes_parts(turn_of: Callable[[Any], str], prompt: str) -> bool:
    try:
        return prompt in turn_of([{"type": "text", "text": prompt}])
    except ValueError:
        return False


def appended_tokens(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Return the number of tokens that the tokenizer appends to a text, such as end-of-text by `add_eos_token`. Prompts
    must not have them, since the response follows."""
    text, whole = (tokenizer(_PROMPTS[0], add_special_tokens=special)["input_ids"] for special in (False, True))
    added = len(whole) - len(text)
    return next((added - before for before in range(added, 0, -1) if whole[before:][: len(text)] == text), added)
