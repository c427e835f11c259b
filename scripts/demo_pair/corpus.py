"""The corpus of the demo pair: seeded text about one small invented village.

Four kinds of documents share one world: stories, questions and answers, small Python functions, and lists.
Every choice is skewed: a fixed hash of its context names the favourite option, which is taken most of the
time. So the text is learnable (the favourite follows from what was said before), and a greedy continuation
moves on from person to person and from subject to subject instead of repeating itself.

Run this file to print a sample: PYTHONPATH=scripts python -m demo_pair.corpus [SEED]
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from demo_pair import phrases, world
from demo_pair.world import FOODS, PEOPLE, PLACES, THINGS, WEEKDAYS, Person, Place, Thing

T = TypeVar("T")

FAVOURITE = 0.88
SECTIONS_PER_DOCUMENT = 24


class Chooser:
    """Skewed choices: the favourite of a context is a hash of the context, the rest is chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, options: Sequence[T], *context: object, favourite: float = FAVOURITE) -> T:
        """Return the favourite of this context, or now and then any of the options."""
        if self.rng.random() < favourite:
            return options[zlib.crc32(repr(context).encode()) % len(options)]
        return self.rng.choice(options)

    def prefer(self, own: T, options: Sequence[T], favourite: float = FAVOURITE) -> T:
        """Return what belongs here, or now and then any of the options."""
        return own if self.rng.random() < favourite else self.rng.choice(options)

    def follow(self, ring: Sequence[T], current: T, favourite: float = FAVOURITE) -> T:
        """Return the element after the current one, or now and then any of the ring."""
        if self.rng.random() < favourite:
            return ring[(ring.index(current) + 1) % len(ring)]
        return self.rng.choice(ring)


def story(choose: Chooser, person: Person, thing: Thing) -> str:
    """Tell in seven short chapters how somebody lost a thing and found it again."""
    friend = choose.follow(PEOPLE, person)
    place = choose.pick(PLACES, "search", thing.noun)
    day = choose.pick(WEEKDAYS, "day", person.name)
    words = {
        "n": person.name,
        "s": person.subject,
        "S": person.subject.capitalize(),
        "o": person.object,
        "h": person.possessive,
        "H": person.possessive.capitalize(),
        "job": person.job,
        "work": person.work,
        "home": person.home,
        "pet": person.pet,
        "petname": person.pet_name,
        "food": person.food,
        "f": friend.name,
        "fs": friend.subject,
        "FS": friend.subject.capitalize(),
        "fh": friend.possessive,
        "fjob": friend.job,
        "fwork": friend.work,
        "ffood": friend.food,
        "thing": f"{thing.adjective} {thing.noun}",
        "noun": thing.noun,
        "use": thing.use,
        "clue": thing.clue,
        "hidden": thing.hidden,
        "place": place.name,
        "sight": place.sight,
        "day": day,
        "weather": choose.pick(world.WEATHER, day),
    }
    lines = [f"Story: {person.name} and the {words['thing']}"]
    for number, (title, slots) in enumerate(phrases.CHAPTERS, start=1):
        sentences = [choose.pick(slot, number, index, person.name) for index, slot in enumerate(slots)]
        lines.append(f"Chapter {number}. {title}\n" + " ".join(sentences).format(**words))
    return "\n\n".join(lines)


def questions(choose: Chooser, person: Person) -> str:
    """Ask and answer what there is to know about one person."""
    friend = choose.follow(PEOPLE, person)
    words = {
        "n": person.name,
        "s": person.subject,
        "S": person.subject.capitalize(),
        "h": person.possessive,
        "o": person.object,
        "job": person.job,
        "work": person.work,
        "home": person.home,
        "pet": person.pet,
        "petname": person.pet_name,
        "food": person.food,
        "duty": person.duty,
        "f": friend.name,
        "fjob": friend.job,
        "day": choose.pick(WEEKDAYS, "day", person.name),
        "place": choose.pick(PLACES, "walk", person.name).name,
    }
    pairs = []
    for index, (question, answers) in enumerate(phrases.QUESTIONS):
        answer = choose.pick(answers, "answer", index, person.name)
        pairs.append(f"Q: {question}\nA: {answer}".format(**words))
    return "\n\n".join(pairs)


def function(choose: Chooser, noun: str, template: str) -> str:
    """Write one small Python function about a noun of the village."""
    number = choose.pick((2, 3, 4, 5, 10), "number", noun)
    return template.format(n=noun, N=noun.capitalize(), k=number)


def packing_list(choose: Chooser, person: Person, place: Place) -> str:
    """List what somebody packs for a trip to a place."""
    day = choose.pick(WEEKDAYS, "trip", place.name)
    items = [choose.pick(options, place.name, i) for i, options in enumerate(phrases.PACKING)]
    head = f"Packing list for {person.name}, who goes to {place.name} on {day}:"
    tail = f"Do not forget: {place.sight} is best seen {choose.pick(world.TIMES, place.name)}."
    return "\n".join([head, *(f"- {item}" for item in items), tail])


def recipe(choose: Chooser, person: Person, food: str) -> str:
    """Write down the recipe of a dish as somebody in the village makes it."""
    parts = zip(*world.DISHES.values(), strict=True)
    main, second, spice, pan = (
        choose.prefer(own, options) for own, options in zip(world.DISHES[food], parts, strict=True)
    )
    minutes = choose.pick((10, 15, 20, 30, 40), "minutes", food)
    count = choose.pick((2, 3, 4, 6), "count", food)
    words = {
        "food": food,
        "main": main,
        "second": second,
        "spice": spice,
        "pan": pan,
        "k": count,
        "m": minutes,
    }
    needs = [choose.pick(slot, food, i).format(**words) for i, slot in enumerate(phrases.NEEDS)]
    steps = [choose.pick(slot, "step", food, i).format(**words) for i, slot in enumerate(phrases.STEPS)]
    lines = [f"Recipe: {food}, the way {person.name} the {person.job} makes it", "You need:"]
    lines += [f"- {need}" for need in needs] + ["Steps:"]
    return "\n".join(lines + [f"{i}. {step}" for i, step in enumerate(steps, start=1)])


def stories(choose: Chooser) -> list[str]:
    person, thing = choose.rng.choice(PEOPLE), choose.rng.choice(THINGS)
    sections = []
    for _ in range(SECTIONS_PER_DOCUMENT // 6):
        sections.append(story(choose, person, thing))
        person, thing = choose.follow(PEOPLE, person), choose.follow(THINGS, thing)
    return sections


def interviews(choose: Chooser) -> list[str]:
    person, sections = choose.rng.choice(PEOPLE), []
    for _ in range(SECTIONS_PER_DOCUMENT // 3):
        sections.append(questions(choose, person))
        person = choose.follow(PEOPLE, person)
    return sections


def code(choose: Chooser) -> list[str]:
    noun, template = choose.rng.choice(world.NOUNS), choose.rng.choice(phrases.FUNCTIONS)
    sections = []
    for index in range(SECTIONS_PER_DOCUMENT):
        sections.append(function(choose, noun, template))
        template = choose.follow(phrases.FUNCTIONS, template)
        if index % 3 == 2:
            noun = choose.follow(world.NOUNS, noun)
    return sections


def lists(choose: Chooser) -> list[str]:
    person, place, food = choose.rng.choice(PEOPLE), choose.rng.choice(PLACES), choose.rng.choice(FOODS)
    packing, sections = choose.rng.random() < 0.5, []
    for _ in range(SECTIONS_PER_DOCUMENT // 2):
        sections.append(packing_list(choose, person, place) if packing else recipe(choose, person, food))
        person, packing = choose.follow(PEOPLE, person), not packing
        place, food = choose.follow(PLACES, place), choose.follow(FOODS, food)
    return sections


KINDS: dict[str, tuple[float, Callable[[Chooser], list[str]]]] = {
    "story": (0.4, stories),
    "question": (0.2, interviews),
    "code": (0.2, code),
    "list": (0.2, lists),
}


def document(rng: random.Random) -> str:
    """Return one document: several sections of one kind, with a blank line between them."""
    kind = rng.choices(list(KINDS), weights=[weight for weight, _ in KINDS.values()])[0]
    return "\n\n".join(KINDS[kind][1](Chooser(rng))) + "\n\n"


def documents(seed: int, count: int) -> list[str]:
    """Return the given number of documents; the same seed gives the same text."""
    rng = random.Random(seed)
    return [document(rng) for _ in range(count)]


if __name__ == "__main__":
    print(documents(int(sys.argv[1]) if len(sys.argv) > 1 else 1, 1)[0])
