"""The tokenizer, and the vocabulary: order, ids and malformed files."""

import json
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refused

from show_attend_tell.data.vocabulary import (
    END,
    PAD,
    SPECIAL,
    START,
    UNKNOWN,
    Vocabulary,
    _split_by_treebank,
    tokenize,
    tokenize_as_written,
)
from show_attend_tell.runtime.errors import DataError

# Results of Stanford's PTB tokenizer, without pycocoevalcap's punctuation.
PTB = {
    "A dog runs.": "a dog runs",
    "A man's dog doesn't bark!": "a man 's dog does n't bark",
    "Two dogs , one ball .": "two dogs one ball",
    "A t-shirt, a black-and-white cat; a hat": "a t-shirt a black-and-white cat a hat",
    'He said "stop" to the dog': "he said stop to the dog",
    "It can't; they cannot see": "it ca n't they can not see",
    "Dogs' toys": "dogs toys",
    "it's the boys' ball": "it 's the boys ball",
    "he'll we've they'd you're": "he 'll we 've they 'd you 're",
    "a 3/4 view of 2,000 people": "a 3/4 view of 2,000 people",
    "50% off for $5 at 5:30 pm": "50 % off for $ 5 at 5:30 pm",
    "A man is running. A dog follows.": "a man is running a dog follows",
    "Mr. Smith at 5 p.m. in the U.S. waits": "mr. smith at 5 p.m. in the u.s. waits",
    "St. Bernard": "st. bernard",
    "rock & roll": "rock & roll",
    "wow... look -- there - is it?": "wow look there is it",
    "Café  ÉCOLE\nline": "café école line",
    "gonna run": "gon na run",
    "a man #5 @ home": "a man # 5 @ home",
    "dogs: big/small people,dogs": "dogs big/small people dogs",
    "A man in a blue t - shirt .": "a man in a blue t shirt",
    'end."': "end",
    "a dog’s ball, it’s the boys’": "a dog 's ball it 's the boys",
    "He can’t, won’t and didn’t": "he ca n't wo n't and did n't",
    "a “stop” sign, ‘go’, «halt», ‹slow›": "a stop sign go halt slow",
    "a man — in a hat – runs―fast": "a man in a hat runs fast",
    "dogs play… and wait…": "dogs play and wait",
    "“A dog runs.” she said": "a dog runs she said",
    "": "",
    " . ": "",
}
words = st.text("abc", min_size=1, max_size=2)
captions = st.lists(st.lists(words, max_size=5), min_size=1, max_size=6)


@pytest.mark.parametrize("text", PTB)
def test_captions_are_split_as_by_the_ptb_tokenizer(text):
    assert tokenize(text) == PTB[text].split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A dog , wet , runs .", ["a", "dog", ",", "wet", ",", "runs", "."]),
        ("A man rides a wave.", ["a", "man", "rides", "a", "wave", "."]),
        ("Two dogs run", ["two", "dogs", "run"]),
        ("In Washington D.C.", ["in", "washington", "d.c."]),
        ("wait ...", ["wait", "..."]),
        (" . ", ["."]),
        ("", []),
    ],
)
def test_punctuation_can_be_kept_as_in_the_files(text, words):
    assert tokenize_as_written(text) == words


FRAGMENTS = ["a", "dog", "st", "5", "cannot", "wanna", "gonna", " ", " ", ",", ".", "-"]
FRAGMENTS += ["'s", "é", "?", "...", ", ", " ."]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
@example("a dog, 5 dogs .")
@example("a st-cannot.")
def test_the_fast_path_equals_treebank(text):
    assert tokenize(text) == _split_by_treebank(" ".join(text.lower().split()))


@given(st.text(max_size=40))
def test_any_text_is_split_into_lower_case_words_without_spaces(text):
    for word in tokenize(text):
        assert word
        assert word == word.lower()
        assert not any(letter.isspace() for letter in word)


def test_special_tokens_have_the_first_ids():
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert SPECIAL == ("<pad>", "<start>", "<end>", "<unk>")
    assert Vocabulary.build([["<unk>", "<end>", "dog"]]).words == (*SPECIAL, "dog")


@given(captions, st.integers(5, 12), st.integers(1, 3))
def test_the_most_frequent_words_are_kept_in_a_fixed_order(captions, size, min_count):
    counts = Counter(word for caption in captions for word in caption)
    frequent = sorted(w for w in counts if counts[w] >= min_count)
    expected = sorted(frequent, key=lambda w: -counts[w])[: size - len(SPECIAL)]
    if not expected:
        with pytest.raises(DataError, match="lower data.min_count"):
            Vocabulary.build(captions, size, min_count)
        return
    vocabulary = Vocabulary.build(captions, size, min_count)
    assert vocabulary.words == (*SPECIAL, *expected)
    assert len(vocabulary) <= size
    assert Vocabulary.build(reversed(captions), size, min_count) == vocabulary


@pytest.mark.parametrize("word", SPECIAL)
def test_a_word_spelled_like_a_special_token_is_unknown(word):
    vocabulary = Vocabulary.build([["a", word]])
    caption = tokenize_as_written(f"{word} a {word} a")
    assert vocabulary.encode(caption) == [UNKNOWN, 4, UNKNOWN, 4]


def test_words_outside_the_vocabulary_are_unknown():
    vocabulary = Vocabulary.build([["a", "dog"], ["a"]], min_count=2)
    assert vocabulary.encode(["a", "dog", "zebra"]) == [4, UNKNOWN, UNKNOWN]
    assert "a" in vocabulary
    assert "dog" not in vocabulary


@given(st.lists(words, max_size=6))
def test_decoding_inverts_encoding_up_to_the_end(sentence):
    vocabulary = Vocabulary.build([[*sentence, "a"]])
    ids = [START, *vocabulary.encode(sentence), END, 4, PAD]
    assert vocabulary.decode(ids) == sentence
    assert vocabulary.decode([UNKNOWN, PAD, 4]) == ["<unk>", vocabulary.words[4]]


def test_saving_and_loading_keeps_the_vocabulary(tmp_path):
    vocabulary = Vocabulary.build([["été", "dog"], ["dog"]])
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    again = Vocabulary.load(path)
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)
    assert [file.name for file in tmp_path.iterdir()] == ["vocabulary.json"]


@pytest.mark.parametrize(
    ("given_words", "message"),
    [(["a", "b"], "must begin with"), ([*SPECIAL, "a", "a"], "Received twice: .'a'")],
)
def test_missing_special_tokens_and_repeated_words_are_refused(given_words, message):
    with pytest.raises(DataError, match=message):
        Vocabulary(given_words)


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", "3", "null", '{"words": 3}', '{"words": ["a"]}', b"\xff"),
        *("[" * 10**5, "9" * 5000, '{"words": {"a": 1}}', '{"words": null}'),
        json.dumps({"words": [*SPECIAL, "a", 3]}),
        json.dumps({"words": [*SPECIAL, "a", ["b"]]}),
        json.dumps({"words": [*SPECIAL, "x" * 10**5, "x" * 10**5]}),
        json.dumps({"words": [*SPECIAL, "\ud800"]}),
        json.dumps({"words": ["x" * 10**5] * 5}),
    ],
)
def test_a_malformed_file_is_named_in_one_line(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(DataError) as caught:
        Vocabulary.load(path)
    with pytest.raises(DataError, match="no such vocabulary; run"):
        Vocabulary.load(tmp_path / "absent.json")
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_a_vocabulary_that_differs_from_its_digest_is_refused(tmp_path):
    path = tmp_path / "vocabulary.json"
    Vocabulary.build([["dog", "cat"]]).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["words"][4:] = content["words"][:3:-1]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="differ from their digest"):
        Vocabulary.load(path)
    del content["sha256"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="differ from their digest"):
        Vocabulary.load(path)
