"""Nouns of a product's title, by which a reward decides whether the right kind of product was bought.

The benchmark uses spaCy's tagger (`en_core_web_sm`). Without it, any word counts that is not in a list of words that
are no nouns. The numbers of this project's tests were recorded with that list.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from hgpo_gym.suggest import option

_WORD = re.compile(r"\w+")
_FUNCTION_WORDS = (
    "the and for with from are was were has have had not but you your our his her its this that these those into onto "
    "over under off out per via all any can will may more most other such than then too very own same who which what "
    "when where how why about above after again against below between both down during each few further here just now "
    "once only some there they them their through until while she him use used using make made get"
)
_NO_NOUNS = frozenset(_FUNCTION_WORDS.split())
_REMEMBERED = 4096
"""Number of titles whose nouns are cached."""
_SPACY_MODEL = "en_core_web_sm"
_SPACY_NOUNS = ("NOUN", "PROPN")

Nouns = Callable[[str], tuple[str, ...]]
"""Function from a text to its nouns, lower-case, in order, with repetitions."""


@lru_cache(maxsize=_REMEMBERED)
def nouns_by_words(text: str) -> tuple[str, ...]:
    """Return every alphabetic word of three letters or more that is not one of about a hundred function words."""
    words = (word.lower() for word in _WORD.findall(text))
    return tuple(word for word in words if word.isalpha() and len(word) > 2 and word not in _NO_NOUNS)


@lru_cache(maxsize=_REMEMBERED)
def nouns_by_spacy(text: str) -> tuple[str, ...]:
    """Return the nouns and proper nouns that spaCy's small English model finds."""
    return tuple(token.text.lower() for token in _spacy_tagger()(text) if token.pos_ in _SPACY_NOUNS)


@cache
def _spacy_tagger() -> Any:
    try:
        import spacy

        return spacy.load(_SPACY_MODEL, exclude=["ner", "lemmatizer"])
    except (ImportError, OSError) as error:
        raise ModuleNotFoundError(
            f"nouns='spacy' needs spaCy and its model ({error}): pip install spacy, then python -m spacy download "
            f"{_SPACY_MODEL}. Or set {option('nouns', 'words')}."
        ) from error


NOUNS: dict[str, Nouns] = {"words": nouns_by_words, "spacy": nouns_by_spacy}
"""Noun finders by name."""
