"""List the nouns of a caption that are worth a tag, in the singular.

A caption names things, people, places and activities by nouns, and :mod:`noun_phrases`
tells nouns from other words by lists of the others, so that it knows no bound on what a
photo shows. As tags that is too generous. Left out here are nouns that name nothing
("a group of", "the side of", "in front of"), parts of a body, which a photo of a person
always shows, and words of that module's nouns that are in fact verbs or adjectives.

Each noun of a phrase is a tag, "tennis" and "racket" of "a tennis racket": an album of
tennis and one of rackets both want the photo. A compound is one tag where its parts
name something else: "hot dog" is no dog, and "fire hydrant" no fire.
"""

import re
from collections.abc import Iterable, Sequence

from show_attend_tell.data.noun_phrases import Kind, kind_of

_WORD = re.compile(r"(?=..)[^\W\d_]+(?:-[^\W\d_]+)*\Z")  # no number, no "'s"

# Nouns that a phrase needs, and that name nothing to look for.
_EMPTY = """
group couple top side front back background foreground picture photo photograph image
shot view closeup close-up close area way middle center centre edge end bottom left
right corner part piece pair kind type sort variety bunch set lot number amount row
line pile stack other someone somebody everyone something anything individual air
midair mid-air distance day time event scene setting place spot space direction
position object item thing stuff assortment collection display arrangement level
section point use style size shape color colour design pattern layer base surface
opposite front-end inside outside look formation motion speed action process work fun
name one bit body first second half rest while whilst midst mid try turn go move trick
herd whole stunt pose light dark shadow course lap hold face-first weather
"""
_BODY = """
head face arm hand leg foot mouth ear nose eye neck shoulder finger thumb knee chest
stomach belly cheek chin tongue tooth lip ankle hip toe wrist elbow waist paw tail
beak palm skin hair limb forehead butt bottom throat claw fist
"""
# Of the nouns of noun_phrases, which takes an unknown word for a noun.
_NOT_NOUNS = """
shirtless barefoot bald sunny steep fast rough public rural urban indoor outdoor clear
dark teenage german french indian japanese chinese european american mexican military
professional inflatable airborne underwater bright wet many single gold silver khaki
denim camouflage print polka teal maroon reddish pale navy aqua turquoise neon
crouches kneels kneel laughs laugh smokes smoke follows follow falls fall fell flips
flip bites bite pulls kicks kick raises raise balances balance paddles paddle spreads
spread jogs jog hikes hike grinds grind passes pass blows blow digs dig flies helps
help leads lead moves enjoys enjoy embraces embrace hugs hug kisses kiss rolls speaks
speak touches touch puts put uses use says say gives give begins begin breaks break
cuts cut serves serve works crawls crawl tugs tug sprays spray splash shoots shoot
rests feeds feed floats float fetches fetch lifts lift dribbles dribble tackles tackle
competes compete participates participate fights fight wades wade bounces bounce stuck
asleep ready downhill uphill upright onstage alongside amidst amongst within near
beyond upper lower front-facing rear low close-by aboard aloft see you we something
who how slightly partially mostly closely quickly brightly playfully happily heavily
newly similar formal funny fancy fake strange silly skinny skimpy elaborate decorative
identical floral plain flat soft sharp blurry fuzzy foggy cloudy rainy windy hilly
leafy lush dense tropical scenic distant lone alone medium bare topless dead fallen
homeless close hard heavy thin fat tight huge larger smaller bigger fresh cooked ripe
modern vintage antique old-fashioned electric electronic digital mobile portable
personal private commercial industrial domestic residential native natural wild real
artificial visible available different own same such much most almost nearly just
still really very too so then now again once either else except though open opens
closes unseen lit written broken worn bent frozen covered filled double triple multi
various numerous able overweight pregnant male female elderly middle-aged beautiful
attractive adorable cute delicious tasty healthy messy dusty muddy grassy empty full
busy calm quiet choppy
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_TAGS = _words(_EMPTY) | _words(_BODY) | _words(_NOT_NOUNS)
# Pairs of words whose parts name something else.
COMPOUNDS = frozenset(
    pair.strip()
    for pair in """
hot dog, ice cream, cell phone, fire hydrant, fire truck, fire engine, fire station,
stop sign, traffic light, traffic signal, street light, parking meter, parking lot,
bus stop, train station, train track, railroad track, teddy bear, polar bear,
stuffed animal, stuffed bear, living room, dining room, toilet paper, paper towel,
remote control, remote controller, game controller, video game, tank top, hot tub,
roller coaster, ferris wheel, monkey bar, trash can, garbage can, swing set, high
chair, rocking chair, ping pong, golden retriever, german shepherd, jack russell,
boston terrier, life jacket, life vest, shopping cart, golf cart, wine glass, sea
gull, sea shell, skate park, french fry, hot chocolate, guinea pig, sports car,
police officer, flower pot, cutting board, diving board, ironing board, bulletin
board, window sill, high heel, rock band, rubber duck, martial art, amusement park,
palm tree, christmas tree
""".replace("\n", " ").split(",")
)

_PLURALS = {
    "people": "person",
    "men": "man",
    "women": "woman",
    "children": "child",
    "feet": "foot",
    "teeth": "tooth",
    "geese": "goose",
    "mice": "mouse",
    "oxen": "ox",
    "sheep": "sheep",
    "fish": "fish",
    "fishes": "fish",
    "knives": "knife",
    "wives": "wife",
    "lives": "life",
    "wolves": "wolf",
    "leaves": "leaf",
    "loaves": "loaf",
    "shelves": "shelf",
    "bookshelves": "bookshelf",
    "scarves": "scarf",
    "calves": "calf",
    "halves": "half",
    "cookies": "cookie",
    "hoodies": "hoodie",
    "movies": "movie",
    "ties": "tie",
    "selfies": "selfie",
    "brownies": "brownie",
    "veggies": "veggie",
    "pies": "pie",
    "zombies": "zombie",
    "smoothies": "smoothie",
    "calories": "calorie",
    "walkie-talkies": "walkie-talkie",
    "genies": "genie",
    "caddies": "caddie",
    "collies": "collie",
    "buses": "bus",
    "cactuses": "cactus",
    "vases": "vase",
    "potatoes": "potato",
    "tomatoes": "tomato",
    "mangoes": "mango",
    "heroes": "hero",
    "bananas": "banana",
}
# Words that end as plurals do, and have no other singular, or another meaning in it.
_SINGULAR = _words(
    """
glasses sunglasses eyeglasses goggles pants shorts jeans overalls tights leggings
trousers pajamas underpants trunks clothes scissors binoculars headphones earphones
stairs bleachers tennis gymnastics sports christmas canvas gas lens atlas texas series
chess news crossbones lacrosse fries rapids barracks dominoes legos cards arts ramen
abdomen specimen regimen
woods groceries dishes doors outdoors upstairs downstairs as was does has us
"""
)


def singular(noun: str) -> str:
    """Return the singular of a noun in lower case; another word as it is."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun in _SINGULAR or len(noun) < 4:
        return noun
    if noun.endswith("men") and len(noun) > 5:
        return f"{noun[:-3]}man"
    if not noun.endswith("s") or noun.endswith(("ss", "us", "is")):
        return noun
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    if noun.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return noun[:-2]
    return noun[:-1]


def nouns_of(words: Sequence[str]) -> frozenset[str]:
    """Return the nouns of a caption that are worth a tag, in the singular.

    Args:
        words: of the caption, in lower case.
    """
    nouns = set()
    t = 0
    while t < len(words):
        noun = singular(words[t])
        if t + 1 < len(words):
            # Before single words, whose parts a compound replaces.
            compound = f"{words[t]} {singular(words[t + 1])}"
            if compound in COMPOUNDS:
                nouns.add(compound)
                t += 2
                continue
        if _is_tag(words[t], noun):
            nouns.add(noun)
        t += 1
    return frozenset(nouns)


def nouns_of_all(captions: Iterable[Sequence[str]]) -> frozenset[str]:
    """Return the nouns of several captions together."""
    return frozenset().union(*map(nouns_of, captions))


def _is_tag(word: str, noun: str) -> bool:
    """Return whether a word of a caption is a tag, given its singular."""
    if kind_of(word) != Kind.NOUN or _WORD.match(word) is None:
        return False
    return word not in _NOT_TAGS and noun not in _NOT_TAGS
