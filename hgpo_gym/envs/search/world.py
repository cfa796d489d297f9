"""A made-up world of people, towns, rivers and companies: a passage on each, and questions of one to three hops.

Each relation has one value for each entity, so that a chain of relations has one answer. No value is frequent, so that
an answer cannot be guessed. Many people share a surname, so that a search finds others too. A hash of its name puts an
entity into a split; a question belongs to a split if all its entities do. No test question names, or passes through,
an entity of a training question.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hgpo_gym.envs.search.questions import Question
from hgpo_gym.envs.search.retrievers import Passage
from hgpo_gym.envs.splits import hashed, in_split

BEGINNINGS, MIDDLES, ENDS = map(
    str.split,
    (
        "Bar Cal Dor El Fen Gal Hal Is Jor Kel Lor Mar Nor Os Pel Quin Ros Sel Tor Ul Ver Wil Yar Zan",
        "a e i o u an en in on ar er or el al is",
        "bek dor fell garth holm kin lund mere nick port ridge stad thorn vale wick ford by mont ster wyn",
    ),
)
SUFFIXES = ("Works", "Press", "Line", "Mills", "Brothers", "Institute")
SHARES = {"person": 0.62, "town": 0.15, "company": 0.15, "river": 0.08}
"""Shares of the passages by what they are about."""

RELATIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "person": {
        "birthplace": ("town", "the birthplace of {}"),
        "spouse": ("person", "the spouse of {}"),
        "employer": ("company", "the employer of {}"),
        "born": ("year", "the year of birth of {}"),
    },
    "town": {
        "river": ("river", "the river that flows through {}"),
        "mayor": ("person", "the mayor of {}"),
        "founded": ("year", "the year in which {} was founded"),
    },
    "company": {
        "seat": ("town", "the town where {} has its seat"),
        "founder": ("person", "the founder of {}"),
    },
    "river": {
        "length": ("length", "the length in kilometres of {}"),
        "mouth": ("town", "the town where {} ends"),
    },
}
"""By kind of entity and relation: the kind of its value, and how it is asked."""
TEMPLATES: Mapping[str, Sequence[str]] = {
    "person": (
        "{name} was born in {birthplace} in {born}. The spouse of {name} is {spouse}, and the employer is {employer}.",
        "In {born}, {name} came into the world in {birthplace}. Today {name} works for {employer} and is married to "
        "{spouse}.",
        "{employer} employs {name}, the spouse of {spouse}. {name} comes from {birthplace} and was born in {born}.",
    ),
    "town": (
        "{name} is a town on the river {river}. It was founded in {founded}, and its mayor is {mayor}.",
        "The river {river} flows through {name}. {mayor} is mayor of the town, which was founded in {founded}.",
    ),
    "company": (
        "{name} is a company with its seat in {seat}. It was founded by {founder}.",
        "{founder} is the founder of {name}. The company has its seat in {seat}.",
    ),
    "river": (
        "The river {name} is {length} kilometres long. It ends at {mouth}.",
        "At {mouth} ends the river {name}. Its length is {length} kilometres.",
    ),
}


@dataclass(frozen=True)
class Entity:
    """A person, town, river or company, with the values of its relations."""

    name: str
    kind: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class World:
    """The entities by name, and a passage on each."""

    entities: Mapping[str, Entity]
    passages: Sequence[Passage]


@lru_cache(maxsize=8)
def make_world(size: int, seed: int) -> World:
    """Return a world of `size` passages."""
    generator = random.Random(seed)
    kinds = {kind: max(2, round(size * share)) for kind, share in SHARES.items() if kind != "person"}
    kinds["person"] = size - sum(kinds.values())
    used: set[str] = set()
    names = {kind: _words(count, generator, used) for kind, count in kinds.items() if kind != "person"}
    names["company"] = [f"{word} {generator.choice(SUFFIXES)}" for word in names["company"]]
    names["person"] = _people(kinds["person"], generator, used)
    entities = {
        name: Entity(
            name, kind, {relation: _value(value, names, name, generator) for relation, (value, _) in relations.items()}
        )
        for kind, relations in RELATIONS.items()
        for name in names[kind]
    }
    passages = [
        Passage(name, generator.choice(TEMPLATES[entity.kind]).format(name=name, **entity.facts))
        for name, entity in entities.items()
    ]
    generator.shuffle(passages)
    return World(entities, tuple(passages))


def _words(count: int, generator: random.Random, used: set[str]) -> list[str]:
    """Return new made-up words, of more syllables as short ones run out."""
    words: list[str] = []
    while len(words) < count:
        # A third of the short words is used at most, so that a new one is soon found.
        middles = 1 if len(used) < 2_400 else 2
        word = generator.choice(BEGINNINGS)
        word += "".join(generator.choice(MIDDLES) for _ in range(middles)) + generator.choice(ENDS)
        if word not in used:
            used.add(word)
            words.append(word)
    return words


def _people(count: int, generator: random.Random, used: set[str]) -> list[str]:
    """Return names of which about four share a surname."""
    first, last = _words(60, generator, used), _words(max(2, count // 4), generator, used)
    people: dict[str, None] = {}
    while len(people) < count:
        people[f"{generator.choice(first)} {generator.choice(last)}"] = None
    return list(people)


def _value(kind: str, names: Mapping[str, list[str]], name: str, generator: random.Random) -> str:
    if kind == "year":
        return str(generator.randrange(1700, 2000))
    if kind == "length":
        return str(generator.randrange(40, 900))
    while (value := generator.choice(names[kind])) == name:
        pass
    return value


def make_questions(world: World, split: str, hops: Sequence[int], count: int, seed: int) -> dict[str, Question]:
    """Return about `count` questions of a split by id, as many of each number of hops, or all if there are fewer."""
    chosen: dict[str, Question] = {}
    for part in ("train", "test") if split == "all" else (split,):
        inside = {name for name in world.entities if in_split(part, hashed(name))}
        share = count / (1.5 if part == "train" else 3)  # of three entities one is for testing
        for number in hops:
            chains = sorted(_chains(world, inside, number))
            random.Random(f"{seed} {part} {number}").shuffle(chains)
            for chain in chains[: max(1, round(share / len(hops)))]:
                chosen["-".join((chain[0].replace(" ", "_"), *chain[1:]))] = _question(world, chain)
    return dict(sorted(chosen.items()))


def _chains(world: World, inside: set[str], hops: int) -> Iterable[tuple[str, ...]]:
    """Return all chains (an entity, then relations) whose entities are `inside`, and all different."""
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((name,), (name,)) for name in inside]
    for hop in range(hops):
        last = hop == hops - 1
        paths = [
            ((*chain, relation), (*visited, value))
            for chain, visited in paths
            for relation, value in world.entities[visited[-1]].facts.items()
            if value not in visited and (value in inside or (last and value not in world.entities))
        ]
    return [chain for chain, _ in paths]


def _question(world: World, chain: tuple[str, ...]) -> Question:
    name, *relations = chain
    phrase, titles = f"the river {name}" if world.entities[name].kind == "river" else name, []
    for relation in relations:
        entity = world.entities[name]
        titles.append(name)
        phrase, name = RELATIONS[entity.kind][relation][1].format(phrase), entity.facts[relation]
    plural = "s" if len(relations) > 1 else ""
    return Question(f"What is {phrase}?", (name,), tuple(titles), f"{len(relations)} hop{plural}")
