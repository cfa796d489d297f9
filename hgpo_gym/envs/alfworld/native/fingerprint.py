"""Fingerprints of a game's rules: every `game.tw-pddl` carries its own copy of the domain and of the grammar.

The native engine implements the ALFRED domain and grammar in Python. So it may only play games with the texts that it
was written from. The fingerprints ignore what does not matter: comments and layout, letter case in the domain, and the
task sentence, which is part of each game's grammar.
"""

import hashlib
import json
import re
from dataclasses import dataclass

_PDDL_COMMENT = re.compile(r";[^\n]*")
_PDDL_TOKEN = re.compile(r"[()]|[^\s()]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_TASK = re.compile(r'("task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*)("(?:[^"\\]|\\.)*")')
_PLAIN_SENTENCE = re.compile(r'[^;|"<>\[\]#{}\\\s]+(?: [^;|"<>\[\]#{}\\\s]+)*')


class UnknownGameRules(ValueError):  # noqa: N818 - names what is so, like ResetNeeded
    """Error for a game with rules that the native engine does not know. TextWorld may play it, see
    `textworld_engine`."""


@dataclass(frozen=True)
class GameRules:
    """Differences between the known domains.

    Attributes:
        washing_places: types of the receptacles that one can clean objects with.
    """

    washing_places: tuple[str, ...]


DOMAINS = {
    # In the released games (json_2.1.1).
    "e733dcfa5154f9d53cbe57f3a9538fac6258eb371abd658b6a15de4c28faa85f": GameRules(
        washing_places=("sinktype", "sinkbasintype")
    ),
    # In the alfworld package, from which `alfworld-generate` makes games.
    "915e118f4f32b4d826bf53c99e860dd85831afffb1a31ad333f063ce005b7122": GameRules(washing_places=("sinkbasintype",)),
}
GRAMMARS = (
    # In the released games (json_2.1.1).
    "8c6bd51856fc40b69e016719cd35e0808bc4e4df8389842bd6103470202fd146",
    # In the alfworld package; the answer to `help` is written down differently and reads the same.
    "b69c4f4ec79e48ba9d06baf55ef9d23cbd9f2d8bdbbfdae06f59e69bf636dd24",
)


def identify(domain: str, grammar: str) -> GameRules:
    """Return the rules of a game with this domain and grammar.

    Raises:
        UnknownGameRules: one of them is not known.
    """
    if (domain_digest := domain_fingerprint(domain)) not in DOMAINS:
        raise UnknownGameRules(
            f"The game's PDDL domain is not one that the native engine knows (sha256 {domain_digest})."
        )
    if (grammar_digest := grammar_fingerprint(grammar)) not in GRAMMARS:
        raise UnknownGameRules(
            f"The game's text grammar is not one that the native engine knows (sha256 {grammar_digest})."
        )
    return DOMAINS[domain_digest]


def domain_fingerprint(domain: str) -> str:
    """SHA-256 over the tokens of a PDDL domain."""
    return _sha256(" ".join(_PDDL_TOKEN.findall(_PDDL_COMMENT.sub("", domain).lower())))


def grammar_fingerprint(grammar: str) -> str:
    """SHA-256 over a text grammar without its task sentence. White space counts inside string literals only."""
    text = _TASK.sub(r'\1""', grammar).replace('"""', " ")
    gaps = [" ".join(gap.split()) for gap in _STRING.split(text)]
    return _sha256("\0".join([*gaps, *_STRING.findall(text)]))


def task_sentence(grammar: str) -> str:
    """Return the task sentence of a game's grammar: `Your task is to: put a clean mug in shelf.`

    Raises:
        UnknownGameRules: there is none, or it holds characters that mean something in the grammar.
    """
    match = _TASK.search(grammar)
    sentence = json.loads(match[2]) if match else ""
    if not _PLAIN_SENTENCE.fullmatch(sentence):
        raise UnknownGameRules(f"The game's task is not a plain sentence: {sentence!r}.")
    return sentence


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
