"""Queries made from an instruction, for those who do not write their own."""

import re

PRICE_LIMIT = re.compile(r",? and price lower than (\d+(?:\.\d+)?) dollars")
"""Pattern of the highest price in an instruction."""

_FILLERS = (
    "a about also am an and any are as at be buy by can color could do does find flavor for from get has have hello "
    "help hi how i i'd i'm i've if in is it its just like looking lower me my need of on one or order pair place "
    "please price scent set shopping should show size so some style than that the them these this those to use want "
    "what when where which will with would you your"
)
_SAYS_NOTHING = frozenset(_FILLERS.split())


def suggested_queries(instruction: str) -> tuple[str, ...]:
    """Return queries from an instruction, the likeliest first: its key words; those of its first clause; its own words.

    None of them has the price, which the search does not index.
    """
    # Brackets would part an action elsewhere.
    words = " ".join(re.sub(r"[][]", " ", PRICE_LIMIT.sub("", instruction)).lower().split())
    clause = re.split("[,.?!] ", words)[0]
    return tuple(dict.fromkeys(query for query in (key_words(words), key_words(clause), words) if query))


def key_words(text: str) -> str:
    """Return a lower-case text without fillers, nor the punctuation at the ends of words."""
    words = (word.strip(",.;:!?") for word in text.split())
    return " ".join(word for word in words if word and word not in _SAYS_NOTHING)
