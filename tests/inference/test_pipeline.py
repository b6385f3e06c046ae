"""The pipeline: captions of files, folders and images, with details and seeds."""

import dataclasses
import io
import json
import os
import pickle
import re
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from new_process import python
from PIL import Image, ImageOps, PngImagePlugin
from refusals import refused
from threadpoolctl import threadpool_info
from tiny_pipeline import DECODING, photo_bytes, tiny_pipeline, with_decoding

import show_attend_tell as sat
from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.photo_faults import UNREADABLE
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.inference import engine as engine_module
from show_attend_tell.inference.engine import Engine
from show_attend_tell.inference.photos import Failure, find_photos, to_input
from show_attend_tell.inference.pipeline import CaptioningPipeline, load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import Caption
from show_attend_tell.reference import parallel
from show_attend_tell.runtime.errors import CaptionError, ModelFileError, PhotoError

ROTATED = Image.Exif()
ROTATED[0x0112] = 6


@pytest.fixture(scope="module")
def pipeline(keras_pipeline):
    """A pipeline with the engine of Keras; the verb has that of NumPy in its tests."""
    return keras_pipeline


@pytest.fixture(scope="module")
def results(pipeline, folder) -> list[Caption | Failure]:
    return list(pipeline.caption_photos([folder]))


@pytest.fixture(scope="module")
def captions(results) -> list[Caption]:
    return [one for one in results if isinstance(one, Caption)]


def test_unreadable_photos_are_reported_in_place_and_stop_nothing(results, folder):
    assert [one.path for one in results] == list(find_photos([folder]))
    (failure,) = (one for one in results if isinstance(one, Failure))
    assert failure.reason.startswith(f"{folder / 'broken.jpeg'}: cannot be read")
    assert failure.to_dict() == {
        "path": str(folder / "broken.jpeg"),
        "error": failure.reason,
    }


UNDOCUMENTED = [
    LookupError,
    TypeError,
    EOFError,
    SyntaxError,
    AssertionError,
    Exception,
]


@pytest.mark.parametrize("error", [*UNREADABLE, *UNDOCUMENTED])
def test_an_error_of_a_decoder_loses_no_other_photo(
    pipeline, folder, monkeypatch, error
):
    class DecoderError(error):
        """An error that a decoder raises for a damaged file."""

    def fail(image):
        raise DecoderError("two\nlines")

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", fail)
    failure, caption = pipeline.caption_photos([folder / "a.png", folder / "b.JPG"])
    fault = "two lines"
    if issubclass(error, Image.DecompressionBombError):
        fault = "it has too many pixels; save a smaller copy"
    reason = f"{folder / 'a.png'}: cannot be read as a photo: {fault}"
    assert failure == Failure(folder / "a.png", reason)
    assert caption.path == folder / "b.JPG"


def test_details_belong_to_the_words(captions, pipeline):
    assert len({one.text for one in captions}) > 1
    for one in captions:
        for each in (one, *one.alternatives):
            T = len(each.words)
            assert each.text == " ".join(each.words)
            assert each.word_log_probs.shape == each.beta.shape == (T,)
            assert each.attention.shape == (T, *pipeline.encoder.grid)
            np.testing.assert_allclose(each.attention.sum((1, 2)), 1, rtol=1e-5)
            assert not {"<pad>", "<start>", "<end>", "<unk>"} & set(each.words)


def test_attention_is_that_of_the_search_row_after_row(captions, pipeline):
    one = max(captions, key=lambda one: len(one.words))
    features = pipeline.encoder.encode(one.square[None])
    found = pipeline.generator.generate(
        features, DecodingSettings(**DECODING, batch_size=1)
    )
    T, (rows, columns) = len(one.words), pipeline.captioner.grid
    assert T > 0
    for row in range(rows):
        for column in range(columns):
            np.testing.assert_allclose(
                one.attention[:, row, column],
                found.alpha[0, 0, :T, row * columns + column],
                atol=1e-4,
            )


def test_log_probabilities_sum_to_that_of_the_caption(captions):
    for one in captions:
        total = one.word_log_probs.sum() + (one.end_log_prob or 0)
        assert one.log_prob == pytest.approx(total, abs=1e-4)
        length = len(one.words) + (one.end_log_prob is not None)
        normalised = one.log_prob / length ** DECODING["length_normalisation"]
        assert one.score == pytest.approx(normalised, rel=1e-4)


def test_a_caption_that_is_cut_has_no_end(pipeline, captions):
    short = with_decoding(pipeline, max_words=1)
    (one,) = short.caption_photos([captions[0].path], CaptionRequest(beam=1))
    assert len(one.words) == 1
    assert one.end_log_prob is None
    assert one.log_prob == pytest.approx(float(one.word_log_probs[0]))


def test_alternatives_are_the_rest_of_the_beam_best_first(captions):
    for one in captions:
        scores = [one.score, *(other.score for other in one.alternatives)]
        assert 2 <= len(scores) <= DECODING["beam"]  # only those that ended
        assert scores == sorted(scores, reverse=True)
        assert one.text not in {other.text for other in one.alternatives}


def test_json_keeps_every_detail_but_the_pixels(captions):
    for one in captions:
        values = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert values["path"] == str(one.path)
        assert tuple(values["words"]) == one.words
        assert values["text"] == one.text
        assert values["alternatives"][0]["text"] == one.alternatives[0].text
        assert not {"square", "view"} & values.keys()
        attention = np.reshape(values["attention"], one.attention.shape)
        np.testing.assert_allclose(attention, one.attention, atol=1e-6)
        np.testing.assert_allclose(values["beta"], one.beta, atol=1e-6)


def test_the_view_keeps_the_proportions_of_the_photo(captions, pipeline):
    one = captions[0]
    height, width = one.view.shape[:2]
    assert abs(height - width) <= 1  # the crop of 48 x 40
    assert height <= 40
    small = Image.fromarray(one.view).resize(one.square.shape[:2])
    assert np.abs(np.asarray(small, float) - one.square).mean() < 20


def test_a_photo_alone_gets_the_caption_it_gets_among_others(pipeline, captions):
    for one in captions[:2]:
        alone = pipeline.caption(one.path)
        assert alone.text == one.text
        np.testing.assert_allclose(alone.attention, one.attention, atol=1e-4)
        assert alone.log_prob == pytest.approx(one.log_prob, abs=1e-3)


def test_more_photos_than_a_batch_keep_their_order(pipeline, captions):
    paths = [one.path for one in captions] * 5
    found = list(pipeline.caption_photos(paths))
    assert [one.path for one in found] == paths
    assert [one.text for one in found] == [one.text for one in captions] * 5


def test_the_engine_knows_the_number_of_photos(pipeline, captions):
    def generate(features, decoding, seeds, regions, photos):
        asked.append(photos)
        return pipeline.generator.generate(features, decoding, seeds, regions)

    asked, model = [], with_decoding(pipeline)
    model.generator.generate = generate
    paths = [one.path for one in captions]
    for count in (2, 3):
        list(model.caption_photos(paths[:count]))
    assert asked == [2, 3]


def test_annotations_are_those_of_the_squares_if_threads_share_the_engine(
    pipeline, monkeypatch
):
    engine = Engine(pipeline.engine.generator, pipeline.engine.encoder)
    side = engine.side
    ours, theirs = np.random.default_rng(0).integers(
        0, 256, (2, 1, side, side, 3), np.uint8
    )
    expected = engine.encode(ours)
    others = [theirs]

    def compare(kept, squares):
        equal = np.array_equal(kept, squares)
        if others:  # another thread asks between the comparison and the answer
            engine.encode(others.pop())
        return equal

    monkeypatch.setattr(engine_module, "np", SimpleNamespace(array_equal=compare))
    np.testing.assert_array_equal(engine.encode(ours), expected)
    np.testing.assert_array_equal(engine.encode(ours), expected)


def test_a_photo_is_encoded_and_captioned_with_one_thread_of_a_product(
    pipeline, photo, monkeypatch
):
    """Threads of BLAS that wait in loops are slow beside other programs."""
    parallel._controller.cache_clear()  # libraries that other tests have loaded
    seen = []

    def watch(owner, name):
        function = getattr(owner, name)

        def watched(*arguments, **options):
            infos = [x for x in threadpool_info() if x["user_api"] == "blas"]
            seen.append((name, {info["num_threads"] for info in infos}))
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(pipeline.engine, "encode")
    watch(pipeline.engine.generator, "generate")
    watch(pipeline, "_result")
    pipeline.caption(photo)
    assert seen == [("encode", {1}), ("generate", {1}), ("_result", {1})]


def test_an_image_gets_the_caption_of_its_file(pipeline, photo):
    expected = pipeline.caption(photo)
    found = pipeline.caption(load_photo(photo))
    assert found.to_dict() == expected.to_dict() | {"path": "photo"}


def test_the_seed_of_a_photo_is_that_of_its_pixels(pipeline, photo):
    square = pipeline.caption(photo).square
    request = CaptionRequest(method="sample", seed=4)
    (found,) = pipeline.caption_photos([photo], request)
    expected = pipeline.generator.generate(
        pipeline.encoder.encode(square[None]),
        DecodingSettings(**DECODING, method="sample", batch_size=1),
        seeds=[(4, zlib.crc32(square.tobytes()))],
    )
    tokens = expected.tokens[0, 0].tolist()
    assert list(found.words) == pipeline.captioner.vocabulary.decode(tokens)


def peaks(attention):
    return np.reshape(attention, (len(attention), -1)).argmax(1).tolist()


@pytest.mark.nightly
def test_locations_are_given_where_each_word_has_one(pipeline, photo):
    assert pipeline.caption(photo).locations is None
    found = pipeline.caption(photo, locations="likeliest")
    assert found.locations.tolist() == peaks(found.attention)
    sampled = pipeline.caption(photo, locations="sampled", seed=4)
    assert len(sampled.locations) == len(sampled.words)
    assert sampled.locations.tolist() != peaks(sampled.attention)


@pytest.mark.nightly
def test_several_samples_begin_with_the_one_of_the_seed(pipeline, photo):
    image = load_photo(photo)
    texts = set()
    for seed in range(6):
        request = CaptionRequest(method="sample", seed=seed, temperature=1.5)
        (single,) = pipeline.caption_photos([photo], request)
        sampled = dataclasses.replace(request, samples=5)
        (several,) = pipeline.caption_inputs([to_input(image)], sampled)
        assert several.text == single.text
        others = [one.text for one in several.alternatives]
        assert len({several.text, *others}) == 1 + len(others)
        scores = [one.score for one in several.alternatives]
        assert scores == sorted(scores, reverse=True)
        texts.add(several.text)
    assert len(texts) > 1


def test_decoding_is_that_saved_with_the_model_unless_changed(pipeline):
    assert pipeline.decoding() == DecodingSettings(**DECODING)
    assert pipeline.decoding(CaptionRequest(beam=7)).beam == 7
    assert pipeline.decoding(CaptionRequest(beam=7, seed=None)).max_words == 6


def test_a_beam_selects_beam_search_where_the_model_samples_or_is_greedy(pipeline):
    for method in ("sample", "greedy"):
        own = with_decoding(pipeline, method=method)
        assert own.decoding().method == method
        assert own.decoding(CaptionRequest(beam=3)) == DecodingSettings(**DECODING)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 101}, "`beam` must be 1 to 100. Received: 101; correct it$"),
        ({"beam": "wide"}, "`beam` must be 1 to 100. Received: 'wide'; correct it$"),
        ({"locations": "best"}, "`locations` must be expected, likel"),
        ({"method": "dance"}, "`method` must be beam or sample. Received: 'dance'"),
        ({"temperature": 0}, "`temperature` must be a number of at least 0.001. Rec"),
        ({"temperature": 1e-300}, "`temperature` must be a number of at least 0.001"),
        ({"seed": -1}, "`seed` must be a whole number from 0 to .* Received: -1;"),
        ({"seed": 3}, "`seed` has no effect with"),
        ({"seed": 3, "locations": "likeliest"}, "`seed` has no effect with"),
        ({"temperature": 2}, "`temperature` needs method = 'sample'. Received: temp"),
        ({"samples": 5}, "`samples` needs method = 'sample'. Received: samples = 5, "),
    ],
)
def test_decoding_refuses_misuse_in_one_line(pipeline, changes, message):
    with refused(CaptionError, message):
        pipeline.decoding(CaptionRequest(**changes))


def test_models_are_found_by_file_folder_and_name(pipeline, tmp_path, monkeypatch):
    (tmp_path / "tiny").mkdir()
    file = tmp_path / "tiny" / "model.safetensors"
    file.write_bytes(pipeline.file.read_bytes())
    monkeypatch.chdir(tmp_path)
    for name, more in (("tiny", {}), ("tiny", {"runs": tmp_path}), (file.parent, {})):
        loaded = sat.load(name, **more)
        assert loaded.file.samefile(file)
        assert loaded.captioner.vocabulary == pipeline.captioner.vocabulary
        assert loaded.decoding() == pipeline.decoding()


def test_unusable_photos_and_models_are_refused_in_one_line(pipeline, tmp_path):
    with pytest.raises(PhotoError, match="no such photo"):
        pipeline.caption(tmp_path / "absent.jpg")
    with pytest.raises(PhotoError, match="`photo` must be a file. Received: the fol"):
        pipeline.caption(tmp_path)
    with pytest.raises(ModelFileError, match="no such model"):
        sat.load("absent", runs=tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(
        ModelFileError, match=r"modle\.safe.*nearest: model\.safetensors"
    ):
        sat.load(tmp_path / "modle.safetensors")


def test_paths_bytes_images_and_arrays_get_the_same_caption(pipeline, photo):
    expected = pipeline.caption(photo).to_dict()
    image = Image.open(photo)
    pixels = np.asarray(image)
    opaque = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    for form in (str(photo), photo.read_bytes(), image.copy(), pixels, opaque):
        found = pipeline.caption(form)
        assert found.to_dict() == expected | {"path": str(found.path)}
    assert pipeline.caption(image).path == photo
    assert pipeline.caption(pixels).path.name == "photo"


def test_images_and_bytes_are_turned_upright(pipeline):
    content = photo_bytes(2, "JPEG", size=(60, 40), exif=ROTATED)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    expected = pipeline.caption(upright).square
    for form in (content, Image.open(io.BytesIO(content))):
        np.testing.assert_array_equal(pipeline.caption(form).square, expected)


def test_a_list_gives_a_list_and_a_bad_photo_loses_no_other(pipeline, photo, folder):
    grey = np.zeros((20, 30), np.uint8)
    grey_int = grey.astype(np.int64)
    bad = (b"junk", folder, 3, np.zeros((2, 3, 4, 5), np.uint8), grey_int)
    found = pipeline.caption([photo, *bad, grey, folder / "broken.jpeg"])
    kinds = [type(one) for one in found]
    assert kinds == [Caption, *[Failure] * 5, Caption, Failure]
    assert found[0].text == pipeline.caption(photo).text
    assert found[6].path.name == "photo-7"
    for one, reason in zip(
        found[1:6],
        ("cannot be read as a photo: unknown image", "the folder", "Received: int",
         "pass a batch as a list", "Received: int64 of shape (20, 30)"),
        strict=True,
    ):  # fmt: skip
        assert reason in one.reason
        assert "\n" not in one.reason
    assert pipeline.caption([]) == []
    with pytest.raises(PhotoError, match="must be a path, bytes"):
        pipeline.caption(None)


def test_one_path_is_one_photo_or_one_folder(pipeline, photo, folder, results):
    for form in (str(photo), photo, photo.read_bytes()):
        (found,) = pipeline.caption_photos(form)
        assert found.text == pipeline.caption(photo).text
    again = [one.path for one in pipeline.caption_photos(str(folder))]
    assert again == [one.path for one in results]


def test_a_name_that_is_too_long_loses_no_other_photo(pipeline, photo):
    found = pipeline.caption([photo, "a" * 300 + ".jpg"])
    assert [type(one) for one in found] == [Caption, Failure]
    assert "\n" not in found[1].reason


def test_a_picture_without_pixels_is_refused_in_one_line(pipeline):
    for size in ((0, 0), (0, 5), (5, 0)):
        with refused(PhotoError, "cannot be read as a photo: it has no pixels"):
            pipeline.caption(Image.new("RGB", size))


def test_open_files_buffers_and_numbers_from_0_to_1_are_photos(pipeline, folder):
    path = folder / "a.png"
    expected = pipeline.caption(path).square
    buffer = io.BytesIO()
    buffer.write(path.read_bytes())  # and is at its end
    levels = np.asarray(Image.open(path).convert("RGB"))
    with path.open("rb") as file:
        forms = (file, buffer, memoryview(path.read_bytes()), levels / 255)
        for form in forms:
            caption = pipeline.caption(form)
            np.testing.assert_array_equal(caption.square, expected)
        assert pipeline.caption(file).path == path
    with pytest.raises(PhotoError, match="cannot be read: .*closed"):
        pipeline.caption(file)
    with path.open(encoding="latin-1") as text:
        with pytest.raises(PhotoError, match='open it with the mode "rb"'):
            pipeline.caption(text)
    for numbers in (levels.astype(float), levels / 255 - 0.5, levels * np.nan):
        with pytest.raises(PhotoError, match="must be from 0 to 1. Received"):
            pipeline.caption(numbers)


def test_an_iterable_gives_the_captions_of_a_list(pipeline, folder):
    paths = [folder / "a.png", folder / "b.JPG"]
    expected = [caption.text for caption in pipeline.caption(paths)]
    contents = {path.name: path.read_bytes() for path in paths}
    for several in ((path for path in paths), set(paths[:1]), contents.values()):
        found = [caption.text for caption in pipeline.caption(several)]
        assert found == expected[: len(found)]
    mixed = [paths[0], contents["b.JPG"]]
    assert [one.text for one in pipeline.caption_photos(mixed)] == expected


@pytest.mark.parametrize(
    "url", ["https://example.org/a.jpg", "HTTP://a/b", "data:image/png;base64,AA"]
)
def test_a_url_is_named_as_one(pipeline, url):
    for photo in (url, Path(url)):
        with pytest.raises(PhotoError, match="a URL, and nothing is fetched"):
            pipeline.caption(photo)


def test_an_unknown_option_names_the_nearest(pipeline, folder):
    with pytest.raises(TypeError, match="no option 'beams', nearest: beam"):
        pipeline.caption(folder / "a.png", beams=3)
    with pytest.raises(TypeError, match="no option 'x'; the options are method, beam"):
        pipeline.caption(folder / "a.png", x=3)


def test_a_loaded_pipeline_is_pickled_as_its_files(folder, monkeypatch):
    file = tiny_pipeline().file
    loaded = load(os.path.relpath(file), engine="numpy")
    content = pickle.dumps(loaded)
    assert len(content) < 2000
    monkeypatch.chdir("/")
    again = pickle.loads(content)
    photo = folder / "a.png"
    assert again.caption(photo).text == loaded.caption(photo).text
    assert (
        repr(again)
        == repr(loaded)
        == (f"CaptioningPipeline({file.name}, engine: NumPy)")
    )
    with pytest.raises(TypeError, match="save the captioner and load it"):
        pickle.dumps(CaptioningPipeline(loaded.engine))


@pytest.mark.parametrize("name", ["nope", "photo.jpg", ""])
def test_a_model_that_is_absent_is_named_as_it_was_typed(name, tmp_path):
    message = f"^{name!r}: no such model: .* no run in {re.escape(str(tmp_path))}; "
    with pytest.raises(ModelFileError, match=message):
        load(name, runs=tmp_path)


def test_an_unknown_engine_is_refused(pipeline):
    with pytest.raises(CaptionError, match="`engine` must be numpy or keras"):
        load(pipeline.file, engine="auto")


QUIET = """
import sys
import show_attend_tell as sat
for name in sat.__all__:
    getattr(sat, name)
sat.load(sys.argv[1], engine="keras")
"""


@pytest.mark.nightly
def test_importing_every_name_and_loading_a_model_print_nothing(pipeline):
    done = python("-c", QUIET, pipeline.file, quiet=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
