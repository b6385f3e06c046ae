"""Reranking: vectors of captions, the prediction of CIDEr, order, and the file."""

import dataclasses
import functools
import math
import operator
from collections import Counter

import numpy as np
import pytest
import tiny_captioner as tiny
from checks import assert_equal_leaves
from refusals import refused
from tensor_files import repack

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.vocabulary import END, UNKNOWN
from show_attend_tell.models.generator import Generator
from show_attend_tell.reference import reranker as module
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.reference.reranker import (
    NONE,
    NgramVectors,
    descriptors,
    find_reranker,
    load_reranker,
    require_writable,
    save_reranker,
)
from show_attend_tell.reference.tensor_file import write_tensors
from show_attend_tell.runtime.errors import DataError, ModelFileError
from show_attend_tell.training import reranking
from show_attend_tell.training.reranking import GAMMA, LAMBDA, fit

pytestmark = pytest.mark.usefixtures("eager_searches")

IDENTITY = {"network": "VGG16", "layer": "block5_conv3"}
DECODING = DecodingSettings(beam=4, max_words=5, length_normalisation=0.7)
PHOTOS = 12


@pytest.fixture
def captions(rng):
    """Ids of two captions of each training photo."""
    return [
        [rng.integers(UNKNOWN, tiny.K, rng.integers(1, 7)).tolist() for _ in range(2)]
        for _ in range(PHOTOS)
    ]


@pytest.fixture
def photos(rng):
    return descriptors(rng.uniform(0, 4, (PHOTOS, tiny.L, tiny.D)))


@pytest.fixture
def reranker(photos, captions, monkeypatch):
    monkeypatch.setattr(reranking, "MIN_PHOTOS", 2)
    return fit(photos, captions, tiny.WORDS, IDENTITY)


@pytest.fixture
def captioner(rng):
    model = tiny.build(rng)
    model.decoder.l_o_b.assign(-3.0 * (np.arange(tiny.K) == END))  # longer captions
    model.encoder_identity = IDENTITY
    return model


def oracle_vectors(captions, words, least):
    """TF-IDF vectors of one caption by its n, as dictionaries, from the definition."""
    everything = [
        {
            tuple(w[k : k + n])
            for w in photo
            for n in (1, 2, 3, 4)
            for k in range(len(w))
        }
        for photo in captions
    ]
    found = []
    for n in (1, 2, 3, 4):
        counts = Counter(tuple(words[k : k + n]) for k in range(len(words) - n + 1))
        vector = {}
        for ngram, times in counts.items():
            df = sum(ngram in photo for photo in everything)
            if df >= least and UNKNOWN not in ngram:
                vector[ngram] = times * math.log(len(captions) / df)
        found.append(vector)
    return found


def cosine(a, b):
    lengths = [math.sqrt(sum(x * x for x in v.values())) for v in (a, b)]
    product = sum(x * b.get(ngram, 0.0) for ngram, x in a.items())
    return product / math.prod(lengths) if all(lengths) else 0.0


@pytest.mark.parametrize("least", [1, 3])
def test_the_product_of_two_vectors_is_the_mean_cosine_of_cider(captions, least):
    vectors = NgramVectors.of_photos(captions, least)
    dense = np.zeros((4, len(vectors.ngrams)))
    chosen = [captions[0][0], captions[1][1], captions[2][0], captions[0][0][:2]]
    for row, words in zip(dense, chosen, strict=True):
        columns, values = vectors.vector(words)
        row[columns] = values
    for a in range(4):
        for b in range(4):
            pairs = zip(
                oracle_vectors(captions, chosen[a], least),
                oracle_vectors(captions, chosen[b], least),
                strict=True,
            )
            expected = np.mean([cosine(*pair) for pair in pairs])
            assert dense[a] @ dense[b] == pytest.approx(expected, abs=1e-6)


def dense_vectors(vectors, captions):
    """The mean vector of each photo's captions, (N, G)."""
    found = np.zeros((len(captions), len(vectors.ngrams)))
    for row, of_photo in zip(found, captions, strict=True):
        for words in of_photo:
            columns, values = vectors.vector(words)
            row[columns] += values / len(of_photo)
    return found


def kernel_of(x, landmarks):
    return np.exp(-GAMMA * ((x[:, None] - landmarks[None]) ** 2).sum(-1))


def test_expected_cider_is_kernel_ridge_regression(rng, photos, captions, monkeypatch):
    monkeypatch.setattr(reranking, "MIN_PHOTOS", 2)
    # Without the rounding of the landmarks, which kernel ridge regression has not.
    monkeypatch.setattr(reranking, "quantise", lambda matrix: (matrix, np.float32(1)))
    reranker = fit(photos, captions, tiny.WORDS, IDENTITY)
    Y = dense_vectors(reranker.vectors, captions)
    Q = np.linalg.svd(Y)[2][: PHOTOS - 1].T  # the full rank, less one
    np.testing.assert_allclose(reranker.basis @ reranker.basis.T, Q @ Q.T, atol=1e-5)
    new = descriptors(rng.uniform(0, 4, (3, tiny.L, tiny.D)))
    x, other = (
        z / np.linalg.norm(z, axis=1, keepdims=True)
        for z in ((part - photos.mean(0)) / photos.std(0) for part in (photos, new))
    )
    K = kernel_of(x, x)
    weights = kernel_of(other, x) @ np.linalg.inv(K + LAMBDA * np.eye(PHOTOS))
    expected = weights @ Y @ Q @ Q.T  # (3, G)
    predicted = reranker.predict(new)
    for words in (captions[0][0], captions[5][1], [UNKNOWN]):
        vector = np.zeros(len(reranker.vectors.ngrams))
        columns, values = reranker.vectors.vector(words)
        vector[columns] = values
        for row, one in zip(expected, predicted, strict=True):
            found = reranker.expected_cider(one, [words])
            assert found[0] == pytest.approx(row @ vector, abs=2e-4)


def test_fewer_landmarks_minimise_the_stated_objective(rng, photos, captions):
    found = fit(photos, captions, tiny.WORDS, IDENTITY, max_landmarks=5)
    assert found.landmarks.shape == (5, tiny.D)
    target = dense_vectors(found.vectors, captions) @ found.basis
    x = (photos - found.mean) / found.deviation
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    K, own = kernel_of(x, found.landmarks), kernel_of(found.landmarks, found.landmarks)

    def objective(C):
        return ((K @ C - target) ** 2).sum() + LAMBDA * np.trace(C.T @ own @ C)

    least = objective(found.coefficients)
    for _ in range(5):
        change = rng.normal(0, 0.1, found.coefficients.shape)
        assert objective(found.coefficients + change) > least


def test_a_photo_of_weight_2_counts_as_two_in_document_frequencies(captions):
    weights = 1 + np.arange(PHOTOS) % 2
    repeated = [
        photo for photo, n in zip(captions, weights, strict=True) for _ in "ab"[:n]
    ]
    found = NgramVectors.of_photos(captions, 3, weights)
    expected = NgramVectors.of_photos(repeated, 3)
    assert found.ngrams == expected.ngrams
    np.testing.assert_allclose(found.idf, expected.idf, rtol=1e-6)


def test_what_all_photos_have_weighs_nothing(rng, monkeypatch):
    weights = rng.uniform(0.1, 2, 3000)
    # Python 3.12 and later compensate for rounding in `sum`, earlier ones do not.
    monkeypatch.setattr(module, "sum", math.fsum, raising=False)
    assert math.fsum(weights) != functools.reduce(operator.add, weights.tolist())
    found = NgramVectors.of_photos([[[4, 5]]] * 3000, 5, weights)
    assert found.ngrams == ((4,), (4, 5), (5,))
    assert not found.idf.any()


def test_each_data_set_is_regressed_alone_and_counts_by_its_weight(
    rng, photos, captions, monkeypatch
):
    monkeypatch.setattr(reranking, "MIN_PHOTOS", 1)
    monkeypatch.setattr(reranking, "quantise", lambda matrix: (matrix, np.float32(1)))
    captions[3:5] = [captions[3] * 2, captions[4] * 3]  # 4 and 6 captions, 2 elsewhere
    captions[9] = captions[9][:1]
    sets = np.array([0] * 7 + [1] * 5)
    shown = np.where(sets == 0, 1.0, 0.3)
    found = fit(photos, captions, tiny.WORDS, IDENTITY, shown, sets)

    counts = np.array(list(map(len, captions)), float)
    means = np.where(sets == 0, (5 * 2 + 4 + 6) / 7, (4 * 2 + 1) / 5)
    c = counts / means
    w = shown * c
    vectors = NgramVectors.of_photos(captions, 1, w)
    assert found.vectors.ngrams == vectors.ngrams
    Y = dense_vectors(vectors, captions)
    Q = np.linalg.svd(np.sqrt(w)[:, None] * Y)[2][: PHOTOS - 1].T
    mean = (w[:, None] * photos).sum(0) / w.sum()
    deviation = np.sqrt((w[:, None] * (photos - mean) ** 2).sum(0) / w.sum())
    new = descriptors(rng.uniform(0, 4, (3, tiny.L, tiny.D)))
    x, other = (
        z / np.linalg.norm(z, axis=1, keepdims=True)
        for z in ((part - mean) / deviation for part in (photos, new))
    )
    K = kernel_of(x, x)
    expected = np.zeros((3, len(vectors.ngrams)))
    for number in (0, 1):
        own = sets == number
        left = K[own].T @ (c[own, None] * K[own]) + LAMBDA * K
        C = np.linalg.solve(left, K[own].T @ (c[own, None] * Y[own]))
        expected += w[own].sum() / w.sum() * kernel_of(other, x) @ C
    predicted = found.predict(new) @ found.basis.T
    np.testing.assert_allclose(predicted, expected @ Q @ Q.T, atol=2e-4)


def test_equal_photos_can_be_fitted(photos, captions):
    photos[:] = photos[0]
    found = fit(photos, captions, tiny.WORDS, IDENTITY)
    assert np.isfinite(found.predict(photos)).all()


@pytest.mark.parametrize("count", [1, 2, 4, PHOTOS])
@pytest.mark.parametrize("caption", [[4], [4, 5, 6, 7, 8], [UNKNOWN]])
def test_captions_that_are_all_equal_are_refused_in_one_line(photos, caption, count):
    with refused(DataError, "n-grams"):
        fit(photos[:count], [[caption]] * count, tiny.WORDS, IDENTITY)


def test_blocks_of_photos_give_the_same(photos, captions, reranker, monkeypatch):
    monkeypatch.setattr(reranking, "_BLOCK", 5)
    found = fit(photos, captions, tiny.WORDS, IDENTITY)
    np.testing.assert_allclose(found.coefficients, reranker.coefficients, rtol=1e-6)


@pytest.mark.parametrize("shares", [None, np.float32([[0, 0, 1, 0.5, 0, 0]] * 3)])
def test_hypotheses_are_ranked_by_the_stated_score(rng, captioner, reranker, shares):
    annotations = tiny.photos(rng, 3)
    ranked = Generator([captioner], reranker=reranker)
    plain, found = (
        model.generate(annotations, DECODING, regions=shares)
        for model in (captioner, ranked)
    )
    x = descriptors(annotations, shares)
    if shares is not None:
        mean = (annotations[:, 2] * 1.0 + annotations[:, 3] * 0.5) / 1.5
        np.testing.assert_allclose(x, np.sqrt(np.maximum(mean, 0)), rtol=1e-3)
    for b in range(3):
        hypotheses = [row[row > END].tolist() for row in plain.tokens[b]]
        predicted = reranker.predict(x[b : b + 1])[0]
        cider = reranker.expected_cider(predicted, hypotheses)
        scores = plain.scores[b] + DECODING.rerank_weight * cider
        order = np.argsort(-scores, kind="stable")
        np.testing.assert_allclose(found.scores[b], scores[order], rtol=1e-5)
        for name in plain._fields[:-1]:
            if name != "scores":
                expected = getattr(plain, name)[b][order]
                np.testing.assert_array_equal(getattr(found, name)[b], expected)
    assert (found.tokens != plain.tokens).any()


def test_places_without_a_hypothesis_stay_last(rng, captioner, reranker):
    annotations = tiny.photos(rng, 2)
    many = dataclasses.replace(DECODING, beam=30, max_words=1)
    found = Generator([captioner], reranker=reranker).generate(annotations, many)
    absent = found.lengths == 0
    assert absent.any()
    assert not absent[:, 0].any()
    assert (np.diff(absent.astype(int), axis=1) >= 0).all()
    assert np.isneginf(found.scores[absent]).all()


def test_the_file_gives_the_reranker_back(tmp_path, rng, reranker, captioner):
    path = tmp_path / "new" / "reranker.safetensors"
    save_reranker(reranker, path)
    found = load_reranker(path)
    assert found.vectors.ngrams == reranker.vectors.ngrams
    assert (found.vocabulary, found.gamma) == (tiny.WORDS, GAMMA)
    new = descriptors(tiny.photos(rng))
    np.testing.assert_allclose(found.predict(new), reranker.predict(new), atol=0.02)
    assert found.file == path
    captioner.save(tmp_path / "model.safetensors")
    assert find_reranker(None, [tmp_path / "model.safetensors"]) is None
    assert find_reranker(NONE, [tmp_path / "new" / "model.safetensors"]) is None


def test_a_reranker_is_a_part_of_a_captioner_s_file(tmp_path, rng, reranker, captioner):
    alone, model = tmp_path / "alone.safetensors", tmp_path / "model.safetensors"
    captioner.save(model)
    weights = read_captioner(model).weights
    save_reranker(reranker, alone)
    save_reranker(reranker, model)
    assert_equal_leaves(read_captioner(model).weights, weights)
    found, other = find_reranker(None, [model]), load_reranker(alone)
    assert (found.file, other.file) == (model, alone)
    assert found.digest() == other.digest()
    assert load_reranker(model).digest() == other.digest()
    assert find_reranker(None, [model, model]) is None  # an ensemble has none
    assert find_reranker(NONE, [model]) is None
    save_reranker(dataclasses.replace(reranker, gamma=0.25), model)
    assert load_reranker(model).gamma == 0.25


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": (*tiny.WORDS[:-1], "z")}, "another vocabulary"),
        ({"encoder_identity": {**IDENTITY, "layer": "block4_conv3"}}, "layer"),
        ({"mean": np.zeros(3), "deviation": np.ones(3)}, "landmarks` must be"),
    ],
)
def test_another_model_s_reranker_is_one_line(
    tmp_path, reranker, captioner, changes, message
):
    save_reranker(
        dataclasses.replace(reranker, **changes), tmp_path / "other.safetensors"
    )
    with refused(ModelFileError, message):
        Generator([captioner], reranker=load_reranker(tmp_path / "other.safetensors"))


not_a_reranker = functools.partial(refused, ModelFileError, "be read as a reranker")


def test_damaged_files_are_one_line(tmp_path, reranker):
    path = tmp_path / "reranker.safetensors"
    save_reranker(reranker, path)
    whole = path.read_bytes()
    cut = [whole[: len(whole) * k // 7] for k in range(7)]
    for content in (*cut, b"not a file of tensors"):
        path.write_bytes(content)
        with not_a_reranker():
            load_reranker(path)
    with refused(ModelFileError, "no such reranker"):
        load_reranker(tmp_path / "absent.safetensors")
    with refused(ModelFileError, "run `show-attend-tell convert"):
        load_reranker(tmp_path / "old.npz")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("idf", np.zeros(3, np.float32), "`reranker/ngrams` must be"),
        ("deviation", np.zeros(tiny.D, np.float32), "must be positive"),
        ("landmarks.scale", np.full(tiny.D, np.nan, np.float32), "must be finite"),
        ("landmarks.scale", np.full(tiny.D, 1e37, np.float32), "must be finite"),
        ("landmarks.scale", np.ones(2, np.float32), "landmarks.scale` must be"),
        ("landmarks", np.zeros((PHOTOS, tiny.D), np.float16), "must be I8"),
        ("coefficients", np.zeros(4, np.float16), "must have 2 axes"),
        ("coefficients", np.zeros((3, 0), np.float16), "`reranker/basis` must be"),
        ("mean", np.zeros(tiny.D, np.float16), "must be F32"),
        ("ngrams", np.full((1, 4), -1, np.int32), "ids of words"),
        ("basis", None, "`reranker/basis` is missing"),
        ("more", np.zeros(4, np.float32), "it also holds 'reranker/more'"),
    ],
)
def test_other_arrays_are_one_line(tmp_path, reranker, name, value, reason):
    path = tmp_path / "reranker.safetensors"
    save_reranker(reranker, path)
    if name == "ngrams":
        value = np.repeat(value, len(reranker.vectors.ngrams), axis=0)
    repack(path, arrays={f"reranker/{name}": value})
    with not_a_reranker() as error:
        load_reranker(path)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ([], "must be an object"),
        ({}, "`gamma`"),
        ({"gamma": 10**400}, "`gamma`"),
        ({"gamma": 0.5, "vocabulary": 1}, "`vocabulary`"),
        ({"gamma": 0.5, "vocabulary": ["a"], "encoder": 1}, "`encoder`"),
        (None, "it has none"),
    ],
)
def test_other_values_are_one_line(tmp_path, reranker, about, reason):
    path = tmp_path / "reranker.safetensors"
    save_reranker(reranker, path)
    repack(path, {"reranker": about})
    with not_a_reranker() as error:
        load_reranker(path)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": (*tiny.WORDS[:-1], "z")}, "another vocabulary"),
        ({"encoder_identity": {**IDENTITY, "layer": "block4_conv3"}}, "layer"),
        ({"mean": np.zeros(3)}, "other annotations"),
    ],
)
def test_a_captioner_s_file_keeps_its_parts_from_another_model_s_reranker(
    tmp_path, reranker, captioner, changes, message
):
    model = tmp_path / "model.safetensors"
    captioner.save(model)
    before = model.read_bytes()
    other = dataclasses.replace(reranker, **changes)
    with refused(ModelFileError, f"Received: {message}.*; run `show-attend"):
        save_reranker(other, model)
    assert model.read_bytes() == before


def test_a_reranker_takes_the_place_of_no_other_file(tmp_path, reranker, captioner):
    path = tmp_path / "file.safetensors"
    require_writable(path)
    save_reranker(reranker, path)
    require_writable(path)
    captioner.save(path)
    require_writable(path)
    write_tensors(path, {"class": "Encoder"}, {"kernel": np.zeros(3)})
    with refused(ModelFileError, "must be the file of a reranker or of a model"):
        require_writable(path)
    path.write_bytes(b"features")
    with refused(ModelFileError, "must be the file of a reranker or of a model"):
        require_writable(path)
