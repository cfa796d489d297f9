"""Parsers of the action in a response of the form `<think>...</think><action>...</action>`, in linear time.

They use no regular expressions. One with several wildcards takes polynomial time in the length of a response, and
models in training write long repetitions.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

_THINK, _THOUGHT, _ACTION, _ACTED = "<think>", "</think>", "<action>", "</action>"
_CHINESE = re.compile("[\u4e00-\u9fff]")


class Reading(NamedTuple):
    """The parsed action of a response.

    Attributes:
        action: stripped; empty if none was found.
        in_form: the response has the requested form. Otherwise its action counts as not valid, whatever its effect.
    """

    action: str
    in_form: bool


def strict(response: str) -> Reading:
    """Return the last closed `<action>` after a closed `<think>`; any other response has no action."""
    # Search from the end: an <action> without a later </action> is no action.
    start = response.rfind(_ACTION, 0, max(0, response.rfind(_ACTED)))
    think = response.find(_THINK)
    thought = response.find(_THOUGHT, think + len(_THINK)) if think >= 0 else -1
    if not 0 <= thought <= start - len(_THOUGHT):
        return Reading("", in_form=False)
    start += len(_ACTION)
    return Reading(response[start : response.find(_ACTED, start)].strip(), in_form=True)


def published(response: str) -> Reading:
    """Read a response as the published code of GiGPO and HGPO does on ALFWorld and WebShop.

    The action is the text between the first `<action>` and the first `</action>`, in lower case. It is executed in any
    case. The response is in form only with both tags of a thought anywhere, and without Chinese characters.
    """
    lower = response.lower()
    start, end = lower.find(_ACTION), lower.find(_ACTED)
    if start < 0 or end < 0:
        return Reading("", in_form=False)
    in_form = _THINK in response and _THOUGHT in response and not _CHINESE.search(response)
    return Reading(lower[start + len(_ACTION) : end].strip(), in_form)


READINGS: dict[str, Callable[[str], Reading]] = {"strict": strict, "published": published}
"""The parsers by the name in `prompt.response_reading`."""
