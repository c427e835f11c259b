"""The turns of phrase of the demo corpus: chapters, questions, functions, packing lists and recipes.

Every row is one sentence (or question, or list item) and its cells are the ways to say it, as in world.py.
"""

from __future__ import annotations

from demo_pair.world import rows


def paragraphs(text: str, between: str = "\n\n") -> tuple[str, ...]:
    """Return the paragraphs of a text."""
    return tuple(text.strip("\n").split(between))


# A title, then the sentences of the chapter.
CHAPTERS = tuple(
    (unit.partition("\n")[0], rows(unit.partition("\n")[2]))
    for unit in paragraphs("""
The morning
{n} was the {job} of the village and lived in {home}.
| In {home} lived {n}, the {job} of the village.
Every day {s} went to {work} with {h} {pet} {petname}.
| {H} {pet} was called {petname}, and the two went everywhere together.
On {day} {weather}. | It was {day}, and {weather}.
{n} ate a piece of {food} and felt happy.
| For breakfast there was {food}, as always.
| {S} made some {food} and shared it with {petname}.

The empty place
But when {n} wanted to take the {thing}, it was gone.
| Then {n} looked for the {thing}, but its place on the wall was empty.
{S} needed it {use}. | Without the {noun} {s} had no way {use}.
{S} looked under the table, behind the door and in every corner.
| {S} opened every box and looked behind every chair, but found nothing.
"Where can it be?" asked {n}. {petname} the {pet} did not know.
| "I am sure it was here yesterday," said {n} to {petname}.

A good friend
So {n} ran to {fwork} and knocked on the door of {f} the {fjob}.
| So {n} went to see {f} the {fjob}, who was busy at {fwork}.
"My {thing} is gone," said {n}. "Will you help me?"
| "Please help me," said {n}. "I have lost the {thing}."
"Of course I will," said {f}. "Two pairs of eyes see more than one."
| "Do not worry," said {f}. "We will find it before the evening."
{FS} put on {fh} coat and took some {ffood} for the way.
| {FS} closed the door, and {fh} bag was full of {ffood}.

The search
They walked to {place}, where you can see {sight}.
| The two friends took the path to {place} and soon they saw {sight}.
At first they found nothing at all, and {n} became sad.
| They called and looked for an hour, and {n} was tired.
Then {petname} stopped and looked at the ground. | Suddenly {petname} began to make a noise.
There was {clue}. | And then they noticed {clue}.
"This is a sign," said {f}. "Somebody was here with the {noun}."
| "Look!" cried {f}. "The {noun} cannot be far away."

The answer
They followed the sign step by step, and {petname} went first.
| Slowly they went on, and the {pet} showed them the way.
And there it was: the {thing} lay {hidden}. | At last {n} saw it. The {thing} was {hidden}.
{n} picked it up and held it in both hands. | {n} laughed and jumped for joy.
"The wind must have carried it here," said {f}.
| "I think a child was playing with it," said {f}.
| "Now I remember," said {n}. "I left it here myself."

The way home
On the way home they talked and sang old songs.
| They went home slowly, because the evening was so beautiful.
"How can I thank you?" asked {n}. | "Without you I would still be looking," said {n}.
"A friend needs no thanks," said {f}, "but I would like some {food}."
| "Give me a piece of your {food}," said {f}, "and we are even."
So they sat down in front of the house, and {petname} slept between them.
| So they ate together until the stars came out, and {petname} got the last piece.

The end of the day
That night {n} put the {thing} back in its place.
| Before {s} went to bed, {n} hung the {thing} on the wall.
From now on {s} looked at it every evening. | Now {s} could use it again {use}.
And {n} knew that a good friend is worth more than any {noun}.
| And {n} learned that nothing is lost as long as somebody helps you to look.
""")
)

# A question, then the answers to choose from.
QUESTIONS = tuple(
    (question, tuple(answers))
    for question, *answers in rows("""
Who is {n}?
| {n} is the {job} of the village. {S} works at {work} and {duty}.
| {n} works at {work}. {S} is the {job} of the village and {duty}.
Where does {n} live?
| {n} lives in {home}. From the window {s} can see the whole village.
| {S} lives in {home}, together with a {pet}.
Does {n} have an animal?
| Yes, {n} has a {pet}. The name of the {pet} is {petname}.
| Yes. {n} and the {pet} {petname} are always together.
What does {n} like to eat?
| Most of all {n} likes {food}. {S} could eat it every day.
| {n} likes {food}, and on {day} there is always some for the guests.
Where does {n} go on {day}?
| On {day} {n} goes to {place}, because it is quiet there.
| On {day} {s} closes {work} and walks to {place} with {petname}.
Who is the best friend of {n}?
| The best friend of {n} is {f}, the {fjob}. They have known each other since they were children.
| It is {f} the {fjob}. {n} and {f} help each other whenever they can.
""")
)

FUNCTIONS = paragraphs(
    '''
def count_{n}s({n}s):
    """Return how many {n}s there are."""
    total = 0
    for {n} in {n}s:
        total += 1
    return total


def first_{n}({n}s):
    """Return the first {n}, or None if there is none."""
    if not {n}s:
        return None
    return {n}s[0]


def add_{n}({n}s, {n}):
    """Add a {n} to the list if it is not there yet."""
    if {n} not in {n}s:
        {n}s.append({n})
    return {n}s


def price_of_{n}s({n}s, price={k}):
    """Return the price of all {n}s together."""
    total = 0
    for {n} in {n}s:
        total += price
    return total


class {N}Box:
    """A box that holds up to {k} {n}s."""

    def __init__(self):
        self.{n}s = []

    def is_full(self):
        return len(self.{n}s) >= {k}

    def put(self, {n}):
        if self.is_full():
            raise ValueError("the box of {n}s is full")
        self.{n}s.append({n})


def longest_{n}({n}s):
    """Return the {n} with the longest name."""
    best = None
    for {n} in {n}s:
        if best is None or len({n}) > len(best):
            best = {n}
    return best


def print_{n}s({n}s):
    """Print every {n} with its number."""
    for number, {n} in enumerate({n}s, start=1):
        print(number, {n})


def without_{n}({n}s, {n}):
    """Return all {n}s except the given one."""
    result = []
    for other in {n}s:
        if other != {n}:
            result.append(other)
    return result


def group_{n}s({n}s):
    """Group the {n}s by their first letter."""
    groups = {{}}
    for {n} in {n}s:
        key = {n}[0]
        if key not in groups:
            groups[key] = []
        groups[key].append({n})
    return groups


def every_{n}({n}s, step={k}):
    """Return every {n} at a multiple of step."""
    return [{n} for i, {n} in enumerate({n}s) if i % step == 0]


def test_{n}s():
    """Check the functions for {n}s."""
    {n}s = ["red {n}", "green {n}"]
    assert count_{n}s({n}s) == 2
    assert first_{n}({n}s) == "red {n}"
    assert first_{n}([]) is None
''',
    between="\n\n\n",
)

PACKING = rows("""
a warm coat | a light shirt | a rain jacket | two woollen jumpers
a pair of strong boots | a pair of sandals | a pair of dry socks
a loaf of bread and some cheese | a pot of honey | six boiled eggs | a bag of nuts
a bottle of water | a can of hot tea | a bottle of apple juice
a map of the hills | a long rope | a net on a stick | a basket for the mushrooms
a lamp for the night | a small knife | a box of matches
a book to read in the evening | a pencil and some paper | a flute to play by the fire
a letter for the people there | a present for a friend | some coins for the way
""")
NEEDS = rows("""
{k} cups of {main} | a big bowl of {main}
a little {second} | {k} spoons of {second}
a pinch of {spice} | one spoon of {spice}
{pan} and a wooden spoon | {pan}
""")
STEPS = rows("""
Wash your hands and put everything on the table. | Make a fire in the stove and wait until it is hot.
Put the {main} into {pan}. | Take {pan} and fill it with the {main}.
Add the {second} and stir well. | Mix in the {second}, a little at a time.
Now add the {spice}. | Do not forget the {spice}.
Cook it for {m} minutes. | Leave it on the stove for {m} minutes.
Let the {food} cool down a little. | Taste the {food} and add more {spice} if you like.
Share it with your friends. | Eat it while it is warm. | Keep a piece for tomorrow.
""")
