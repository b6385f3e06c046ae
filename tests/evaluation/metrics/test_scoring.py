"""Scores of captions in one report, with Java where it is installed, and without."""

import pytest
from refusals import refused

from show_attend_tell.evaluation.metrics.java import meteor, ptb_tokenize
from show_attend_tell.evaluation.metrics.ngrams import FILE_TOKEN_BLEU
from show_attend_tell.evaluation.metrics.scoring import score
from show_attend_tell.runtime.errors import EvaluationError, SetupError

CAPTIONS = {
    "1.jpg": "A man rides a brown horse.",
    "2.jpg": "Two dogs play with a ball.",
}
REFERENCES = {
    "1.jpg": ["A man is riding a horse .", "The man rides a brown horse on grass."],
    "2.jpg": ["Two dogs are playing with a red ball.", "Dogs (two) play, outside!"],
}
# Percent; what pycocoevalcap 1.2 (PTBTokenizer, then Meteor) gives for these captions.
PYCOCOEVALCAP_METEOR = 39.71257916482248

BLEU = [f"BLEU-{n}" for n in range(1, 5)]
NO_JAVA_KEYS = {*BLEU, *(f"{name}-no-bp" for name in BLEU), "ROUGE-L", "CIDEr"}
NO_JAVA_KEYS |= set(FILE_TOKEN_BLEU)


@pytest.mark.usefixtures("no_java")
def test_without_java_all_scores_but_meteor_are_computed_with_notes():
    report = score(CAPTIONS, REFERENCES)
    assert report.scores.keys() == NO_JAVA_KEYS
    assert all(0 <= report.scores[name] <= 100 for name in BLEU)
    assert report.tokenizer == "simple"
    assert [note.partition(":")[0] for note in report.notes] == [
        "simple tokenizer, not PTB, so scores differ slightly",
        "no METEOR",
    ]
    assert all("no `java` on the PATH" in note for note in report.notes)
    assert "java" not in report.versions


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize(
    ("references", "tokenizer", "message"),
    [
        (REFERENCES, "nltk", "`tokenizer` must be auto, ptb or simple"),
        ({**REFERENCES, "1.jpg": []}, "simple", r"no reference with a word: 1\.jpg"),
        ({**REFERENCES, "1.jpg": ["."]}, "simple", r"no reference with a word: 1\.jpg"),
    ],
)
def test_what_cannot_be_scored_is_a_one_line_error(references, tokenizer, message):
    with refused(EvaluationError, message):
        score(CAPTIONS, references, tokenizer=tokenizer)


@pytest.mark.usefixtures("no_java")
def test_the_ptb_tokenizer_without_java_is_a_one_line_error():
    with refused(SetupError, "PTB tokenizer needs Java"):
        score(CAPTIONS, REFERENCES, tokenizer="ptb")


@pytest.mark.usefixtures("no_java")
def test_identical_captions_score_100_and_an_empty_one_zero():
    captions = {**CAPTIONS, "3.jpg": "un café à Zürich 日本"}
    report = score(captions, {photo: [text] for photo, text in captions.items()})
    for name in (*BLEU, "ROUGE-L"):
        assert report.scores[name] == pytest.approx(100, abs=1e-5)
    assert report.scores["CIDEr"] == pytest.approx(1000, abs=1e-3)
    scores = score({**CAPTIONS, "1.jpg": ""}, REFERENCES).statistics["CIDEr"].values
    assert scores[0, 0] == 0 < scores[1, 0]
    single = score({"a": "a dog"}, {"a": ["a dog"]})
    assert any("single photo" in note for note in single.notes)


@pytest.mark.usefixtures("no_java")
def test_references_without_a_word_are_left_out_with_a_note():
    references = {**REFERENCES, "1.jpg": [*REFERENCES["1.jpg"], " . "]}
    report = score(CAPTIONS, references)
    assert report.scores == score(CAPTIONS, REFERENCES).scores
    assert "1 references without a word were left out" in report.notes


@pytest.mark.usefixtures("no_java")
def test_spice_is_computed_on_request_with_a_note_where_it_cannot():
    assert not any("SPICE" in note for note in score(CAPTIONS, REFERENCES).notes)
    report = score(CAPTIONS, REFERENCES, with_spice=True)
    assert "SPICE" not in report.scores
    (note,) = [note for note in report.notes if note.startswith("no SPICE: ")]
    assert "CoreNLP" in note or "needs Java" in note


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_scores_do_not_depend_on_a_locale_with_a_decimal_comma(monkeypatch):
    german = "-Duser.language=de -Duser.country=DE -Duser.language.format=de"
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", german)
    monkeypatch.setenv("_JAVA_OPTIONS", german)
    report = score(CAPTIONS, REFERENCES)
    assert report.scores.keys() == NO_JAVA_KEYS | {"METEOR"}
    assert report.tokenizer == "ptb"
    assert report.notes == ()
    assert report.scores["METEOR"] == pytest.approx(PYCOCOEVALCAP_METEOR, abs=1e-9)
    assert "version" in report.versions["java"]


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_meteor_equals_pycocoevalcap():
    library = pytest.importorskip("pycocoevalcap.meteor.meteor")
    hypotheses = ["a man rides a horse", "", "naïve dogs play", "a ||| dog"]
    references = [["a man is riding a horse"], ["a cat"], ["two dogs play", "a dog"]]
    references += [["a dog"]]
    theirs = library.Meteor()
    expected = theirs.compute_score(
        dict(enumerate(references)), {i: [text] for i, text in enumerate(hypotheses)}
    )
    for stream in (theirs.meteor_p.stdout, theirs.meteor_p.stderr):
        stream.close()
    assert meteor(hypotheses, references, 120).value == 100 * expected[0]


@pytest.mark.usefixtures("java")
def test_ptb_tokens_equal_pycocoevalcap():
    library = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer")
    texts = [text for refs in REFERENCES.values() for text in refs]
    texts += ["It 's the café's \"best\" -- don't...", "T-shirt [1/2], 3 o'clock; {x}"]
    theirs = library.PTBTokenizer().tokenize({"a": [{"caption": t} for t in texts]})
    assert ptb_tokenize(texts, 120) == theirs["a"]


@pytest.mark.usefixtures("java")
def test_unusual_line_breaks_keep_the_order_of_captions():
    texts = ["a\ndog", "", "a\r\x0bcat", "one\u2028two\x85three", "   ", "last"]
    expected = ["a dog", "", "a cat", "one two three", "", "last"]
    assert ptb_tokenize(texts, 120) == expected
