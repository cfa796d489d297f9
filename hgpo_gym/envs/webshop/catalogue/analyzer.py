"""Text to index terms, as Lucene's English analyzer makes them.

Words by Unicode's rules (UAX #29, as in Lucene's standard tokenizer: an ideograph, an emoji, a TM sign is a word of its
own), possessive 's removed, lower case, stop words dropped, Porter's stemmer.
"""

import re
from functools import lru_cache

import regex
import Stemmer

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET."""

# Extended_Pictographic in Unicode 12, which Lucene 9 knows; later versions of Unicode took a third of it back.
_PICTOGRAPHS = (
    "00A9 00AE 203C 2049 2122 2139 2194-2199 21A9-21AA 231A-231B 2328 2388 23CF 23E9-23F3 23F8-23FA 24C2 25AA-25AB "
    "25B6 25C0 25FB-25FE 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271D 2721 2728 2733-2734 2744 "
    "2747 274C 274E 2753-2755 2757 2763-2767 2795-2797 27A1 27B0 27BF 2934-2935 2B05-2B07 2B1B-2B1C 2B50 2B55 3030 "
    "303D 3297 3299 1F000-1F0FF 1F10D-1F10F 1F12F 1F16C-1F171 1F17E-1F17F 1F18E 1F191-1F19A 1F1AD-1F1E5 1F201-1F20F "
    "1F21A 1F22F 1F232-1F23A 1F23C-1F23F 1F249-1F3FA 1F400-1F53D 1F546-1F64F 1F680-1F6FF 1F774-1F77F 1F7D5-1F7FF "
    "1F80C-1F80F 1F848-1F84F 1F85A-1F85F 1F888-1F88F 1F8AE-1F8FF 1F90C-1F93A 1F93C-1F945 1F947-1FFFD"
)


def _word_pattern() -> "regex.Pattern[str]":
    joined = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"  # what attaches to the character before it (rule WB4)
    letter = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{joined}"
    number = rf"\p{{WB=Numeric}}{joined}"
    katakana = rf"\p{{WB=Katakana}}{joined}"
    underscore = rf"(?:\p{{WB=ExtendNumLet}}{joined})"
    in_word = rf"(?:[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}']{joined})"
    in_number = rf"(?:[\p{{WB=MidNum}}\p{{WB=MidNumLet}}']{joined})"
    letters = rf"{letter}(?:(?:{underscore}*+|{in_word}){letter})*+"
    numbers = rf"{number}(?:(?:{underscore}*+|{in_number}){number})*+"
    part = rf"(?:{katakana}(?:{underscore}*+{katakana})*+|(?:{letters}|{numbers})++)"
    word = rf"(?<!_){underscore}*+{part}(?:{underscore}++{part})*+{underscore}*+"
    ideograph = rf"[\p{{Han}}\p{{Hiragana}}]{joined}"
    ranges = ["-".join(f"\\U{int(end, 16):08X}" for end in item.split("-")) for item in _PICTOGRAPHS.split()]
    pictograph = f"[{''.join(ranges)}]{joined}"
    south_east_asian = rf"\p{{Line_Break=Complex_Context}}++{joined}"
    return regex.compile(f"{word}|{ideograph}|{pictograph}|{south_east_asian}", regex.V1)


_WORD = _word_pattern()
_POSSESSIVE = re.compile("['\N{RIGHT SINGLE QUOTATION MARK}\N{FULLWIDTH APOSTROPHE}][sS]$")
# Java lowers these two by themselves, Python by what stands around them or to two characters.
_JAVA_LOWER = str.maketrans(
    {
        "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}": "i",
        "\N{GREEK CAPITAL LETTER SIGMA}": "\N{GREEK SMALL LETTER SIGMA}",
    }
)
_PORTER = Stemmer.Stemmer("porter")
# Words that come to step 2 of the stemmer as "-bli" or "-logi": assembly, assemblies, apologies.
_BLI_OR_LOGI = re.compile(r"(.*)(bl|log)(?:ies|[yi](?:ed|ing)?s?)")


def analyze(text: str) -> list[str]:
    """Return the terms of a text, in order, with repetitions."""
    # White space always parts words, and texts have few different pieces between white space.
    return [
        term for piece in text.split() for term in (_known_terms if len(piece) <= _LONGEST_KNOWN else _terms)(piece)
    ]


def _terms(piece: str) -> tuple[str, ...]:
    words = (_POSSESSIVE.sub("", word).translate(_JAVA_LOWER).lower() for word in _WORD.findall(piece))
    return tuple(stem(word) for word in words if word not in STOP_WORDS)


_known_terms = lru_cache(maxsize=1 << 18)(_terms)
_LONGEST_KNOWN = 40
"""Maximal number of characters of a piece whose terms are cached: an agent may send texts of any length."""


def stem(word: str) -> str:
    """Return Porter's stem of a lower-case word, with the changes of Porter's later C version, which Lucene follows:
    `bli` becomes `ble` and `logi` becomes `log` in step 2; words of one or two letters do not change."""
    if len(word) <= 2:
        return word
    later = _BLI_OR_LOGI.fullmatch(word)
    if later and _has_vowel_then_consonant(later[1]):
        word = later[1] + ("ble" if later[2] == "bl" else "log")
    return _PORTER.stemWord(word)


def _has_vowel_then_consonant(word: str) -> bool:
    """Return whether Porter's "measure" is above 0. A y after a consonant is a vowel."""
    vowel = False
    for position, letter in enumerate(word):
        before, vowel = vowel, letter in "aeiou" or (letter == "y" and position > 0 and not vowel)
        if before and not vowel:
            return True
    return False
