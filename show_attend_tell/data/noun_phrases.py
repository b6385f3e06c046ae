"""Find captions with two noun phrases of one head, such as "a hat and a hat".

A caption names an object twice when the decoder has lost what it wrote: "a bus parked
on the side of a bus". Two phrases with one head are fine when an adjective or a
compound tells them apart: "a red shirt and a blue shirt".

Words have four kinds: *closers* end a noun phrase (function words, adverbs, verbs),
*modifiers* may stand in one, but not as its head (adjectives, numbers), a *joiner*
between two modifiers joins them and is else a closer (and, or), and all other words are
nouns. In::

    a black and white cat   with   a tennis ball   on   a court

the heads are cat, ball and court: the nouns before a closer or the end. The words
between the closer before it and the head are its modifiers; articles and possessives
are closers. The lists are of English captions. In another language nearly all words
are nouns that no closer follows, so no caption has two heads.
"""

import enum
from collections.abc import Iterable, Sequence

import numpy as np

from show_attend_tell.data.vocabulary import SPECIAL


class Kind(enum.IntEnum):
    """The kind of a word."""

    NOUN = 0
    MODIFIER = 1
    CLOSER = 2
    JOINER = 3


_CLOSERS = frozenset(
    """
a an the this that these those his her hers its their theirs my your our 's he she it
they him them himself herself itself themselves each who which what where while when
as but nor so if than then because of in on at by to from with without into onto over
under above below behind beside besides between among through across along around near
against toward towards off out up down inside outside underneath beneath during before
after for about past atop amid upon via next like per is are was were be been being am
has have had do does did can could will would may might not no there here together
away back forward backward backwards just very also too only alone apart ahead indoors
outdoors nearby overhead outstretched upside sideways sits sit sat stands stand stood
lies lie lay lays runs run ran walks walk jumps jump leaps leap plays play rides ride
holds hold held looks look watches wears wear carries carry catches catch caught
throws throw hits kicks eats eat drinks makes make made takes take gets get goes go
went comes come stares stare smiles smile poses pose swims swim climbs climb dives
dive skis surfs skates slides flies fly hangs hang rests waits wait leans lean reads
read talks talk performs perform shows show prepares prepare tries try chases chase
pulls pull pushes push sleeps sleep splashes bites chews digs shakes crosses grabs
grab reaches reach attempts attempt bends sniffs licks appears appear seen shown taken
worn torn thrown built driven ridden drawn wrapped blown bent hung
""".split()
)
_JOINERS = frozenset(["and", "or"])
_MODIFIERS = frozenset(
    """
red blue green yellow white black brown orange pink purple gray grey tan blonde blond
dark light bright golden beige silver multicolored striped plaid big small large
little tiny huge tall short long wide narrow giant young old older younger elderly
adult new male female asian african american wet dry dirty clean muddy snowy sandy
grassy rocky dusty icy shallow deep wooden wood metal stone concrete plastic leather
stuffed furry fluffy hairy curly shaggy colorful two three four five six seven eight
nine ten several many some various few both all another other second third one
different same multiple numerous couple empty full busy open high low hot cold frozen
happy sad pretty beautiful nice cute
""".split()
)
# Nouns that end as verbs do.
_NOUNS = frozenset(
    """
building buildings clothing ceiling painting wedding railing ring king wing string
swing thing spring evening morning lightning opening crossing parking skiing surfing
snowboarding skateboarding swimming fencing housing lighting landing earring stocking
setting flooring icing pudding drawing meeting bed shed seed weed speed sled steed
moped bobsled
""".split()
)
_VERB_ENDINGS = ("ing", "ed")


def kind_of(word: str) -> Kind:
    """Return the kind of a word, in lower case."""
    if word in _CLOSERS or word in SPECIAL:
        return Kind.CLOSER
    if word in _JOINERS:
        return Kind.JOINER
    if word in _MODIFIERS:
        return Kind.MODIFIER
    if word in _NOUNS:
        return Kind.NOUN
    # After the lists, which hold the exceptions.
    if word.endswith(_VERB_ENDINGS):
        return Kind.CLOSER
    return Kind.NOUN


def kinds_of(words: Sequence[str]) -> np.ndarray:
    """Return the kinds of words, such as all of a vocabulary, (K,) int8."""
    return np.array([kind_of(word) for word in words], np.int8)


def repeats_noun(words: Sequence[str] | Sequence[int], kinds: Sequence[int]) -> bool:
    """Return whether two noun phrases have one head and the same modifiers.

    Args:
        words: the words of a caption, or their ids.
        kinds: the kind of each of these words.
    """
    T = len(words)
    phrases = set()
    start = 0  # of the phrase
    for t in range(T):
        if _closes(kinds, t):
            start = t + 1
            continue
        is_last = t + 1 == T or _closes(kinds, t + 1)
        if kinds[t] == Kind.NOUN and is_last:
            phrase = words[t], frozenset(words[start:t])
            if phrase in phrases:
                return True
            phrases.add(phrase)
    return False


def _closes(kinds: Sequence[int], t: int) -> bool:
    """Return whether word t ends the noun phrase before it."""
    if kinds[t] != Kind.JOINER:
        return kinds[t] == Kind.CLOSER
    # "black and white", but not "a hat and a hat"
    joins = 0 < t < len(kinds) - 1
    joins = joins and kinds[t - 1] == Kind.MODIFIER and kinds[t + 1] == Kind.MODIFIER
    return not joins


def share_with_repeated_nouns(captions: Iterable[str]) -> float:
    """Return the share of captions, of words between spaces, that repeat a noun.

    Raises:
        ZeroDivisionError: there is no caption.
    """
    repeated = 0
    count = 0
    for caption in captions:
        words = caption.lower().split()
        repeated += repeats_noun(words, kinds_of(words).tolist())
        count += 1
    return repeated / count
