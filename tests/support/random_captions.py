"""Draw captions of random words, with references that share many of them."""

VOCABULARY = "a man dog red ball runs on the grass with".split()


def draw_corpus(rng, photos=30, references=5):
    """Return random captions that share many words with their references."""
    texts = [
        [
            list(rng.choice(VOCABULARY, size=rng.integers(4, 12)))
            for _ in range(references)
        ]
        for _ in range(photos)
    ]
    captions = [list(refs[0][:-1]) + [str(rng.choice(VOCABULARY))] for refs in texts]
    return captions, texts


def joined(captions, references):
    """Return captions and references as the scorers expect: words joined by spaces."""
    texts = [[" ".join(words) for words in refs] for refs in references]
    return [" ".join(words) for words in captions], texts
