"""The invented village that the demo corpus talks about: its people, places, things and dishes.

Tables have one row a line and bars between the cells; a line that begins with a bar continues its row.
"""

from __future__ import annotations

from typing import NamedTuple


class Person(NamedTuple):
    """Somebody who lives in the village, with the pronouns and all that is known about them."""

    name: str
    subject: str
    object: str
    possessive: str
    job: str
    work: str
    home: str
    pet: str
    pet_name: str
    food: str
    duty: str


class Place(NamedTuple):
    """Where one can go, and what there is to see."""

    name: str
    sight: str


class Thing(NamedTuple):
    """What can be lost: what it is for, the sign that shows the way to it, and where it is found."""

    adjective: str
    noun: str
    use: str
    clue: str
    hidden: str


def rows(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the cells of every row of a table."""
    return tuple(tuple(row.split(" | ")) for row in text.strip().replace("\n| ", " | ").splitlines())


PEOPLE = tuple(
    Person(*row)
    for row in rows("""
Mira | she | her | her | baker | the bakery | a small house by the river | cat | Pip | honey bread
| bakes bread before the sun comes up
Tom | he | him | his | farmer | the farm | a red farmhouse on the hill | dog | Bruno | potato soup
| feeds the cows and looks after the fields
Anna | she | her | her | teacher | the school | a yellow house next to the school | rabbit | Snow
| apple pie | teaches the children to read and to count
Felix | he | him | his | fisher | the harbour | a blue hut near the harbour | gull | Captain
| fish stew | mends the nets and goes out with the boat
Clara | she | her | her | doctor | the clinic | a white house on the square | parrot | Koko
| carrot cake | visits the sick and listens to everybody
Oskar | he | him | his | smith | the forge | a stone house behind the forge | horse | Thunder
| bean stew | makes nails and mends the ploughs
Lena | she | her | her | gardener | the garden | a green house between the apple trees | hedgehog
| Button | berry jam | waters the flowers and cuts the roses
Max | he | him | his | miller | the mill | a round tower next to the mill | donkey | Dusty
| corn porridge | grinds the corn and carries the sacks
Nora | she | her | her | librarian | the library | a narrow house full of books | mouse | Comma
| lemon tart | lends the books and reads to the children
Paul | he | him | his | carpenter | the workshop | a wooden house at the edge of the forest | owl
| Hoot | mushroom pie | builds chairs and mends the doors
Ida | she | her | her | weaver | the weaving room | a low house with a round window | sheep | Wool
| cheese pancakes | weaves blankets and dyes the wool
Jonas | he | him | his | postman | the post office | a little house by the bridge | pigeon | Stamp
| plum dumplings | carries the letters to every door
""")
)
PLACES = tuple(
    Place(*row)
    for row in rows("""
the old mill | the great wheel
the dark forest | the oldest oak
the long beach | the white lighthouse
the high mountain | the snow on the top
the quiet lake | the island with the heron
the big market | the clock with the golden hands
the north valley | the waterfall
the castle ruin | the broken tower
""")
)
THINGS = tuple(
    Thing(*row)
    for row in rows("""
brass | lantern | to walk home in the dark | a drop of wax on the ground | under the old bridge
silver | key | to open the chest of the village | a mark in the dust | in the nest of a magpie
red | kite | to see where the wind comes from | a piece of red string
| in the branches of the tallest tree
wooden | flute | to call the birds in the morning | a soft sound in the air | inside a hollow tree
golden | bell | to call everybody to the table | a bright ring far away | at the bottom of the well
blue | scarf | to keep warm in the evening | a thread of blue wool | in the basket of a sleeping dog
old | map | to find the way across the hills | a torn corner of paper
| between two books on a high shelf
copper | kettle | to make tea for the guests | a trail of warm water | behind a heap of flour sacks
green | bottle | to carry water to the fields | a wet ring on a stone | in the reeds beside the lake
heavy | hammer | to mend the roof before winter | a bent nail on the path | on a cart full of hay
""")
)
FOODS = tuple(person.food for person in PEOPLE)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEATHER = (
    "the sun was shining and the air was warm",
    "a light rain was falling on the roofs",
    "a thick fog lay over the fields",
    "a cold wind was blowing from the north",
    "the first snow lay on the grass",
)
TIMES = ("early in the morning", "at noon", "in the afternoon", "when the sun goes down", "on a clear night")
NOUNS = ("pear", "letter", "book", "lamp", "horse", "boat", "stone", "flower", "basket", "coin")
# What goes into each dish: the main part, a second one, a spice and the pan.
DISHES = {
    food: tuple(parts)
    for food, *parts in rows("""
honey bread | flour | honey | salt | a flat tin
potato soup | potatoes | cream | pepper | a large pot
apple pie | apples | butter | cinnamon | a flat tin
fish stew | fish | oil | thyme | a large pot
carrot cake | carrots | butter | sugar | a clay bowl
bean stew | beans | oil | pepper | a large pot
berry jam | berries | honey | sugar | a deep pan
corn porridge | corn | milk | salt | a deep pan
lemon tart | lemons | cream | sugar | a flat tin
mushroom pie | mushrooms | cheese | thyme | a clay bowl
cheese pancakes | flour | cheese | salt | a deep pan
plum dumplings | plums | butter | cinnamon | a large pot
""")
}
