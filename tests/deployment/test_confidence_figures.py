"""The confidence that the pages print, by their JavaScript."""

import base64
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_calibration import (
    VOCABULARY,
    make_calibration,
    make_hypotheses,
    make_space,
)

from show_attend_tell.inference.confidence import STATISTICS, gather_evidence
from show_attend_tell.inference.confidence import statistics as statistics_of
from show_attend_tell.inference.result import (
    CONFIDENCE_WORDS,
    confidence_figures,
    confidence_word,
)

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "show_attend_tell" / "deployment" / "server" / "static"
PROGRAM = """
const [path, numbers, limits] = process.argv.slice(1);
require("vm").runInThisContext(require("fs").readFileSync(path, "utf8"));
const figures = (x) => confidenceFigures(x, JSON.parse(limits));
console.log(JSON.stringify(JSON.parse(numbers).map(figures)));
"""

# A calibration whose confidence is a given number.
WORDS = """
const [url, numbers, words] = process.argv.slice(1);
import(url).then(({ Calibration }) => {
  const answers = JSON.parse(numbers).map((number) => {
    const quality = [Math.log(number / (1 - number))];
    const calibration = Object.assign(Object.create(Calibration.prototype), {
      columns: { familiarity: [], quality: [] }, familiarity: [100], quality,
      statistics: [], confidence_words: JSON.parse(words), values: () => ({}),
    });
    const found = calibration.describe([], [1, 1], []);
    return [found.confidence_word, found.confidence_limits];
  });
  console.log(JSON.stringify(answers));
});
"""

STATISTICS_OF = """
const [url, content, photos] = process.argv.slice(1);
import(url).then(({ Calibration }) => {
  const calibration = new Calibration(JSON.parse(content));
  console.log(JSON.stringify(JSON.parse(photos).map(({ features, captions }) => [
    calibration.values(features, [5, 2], captions),
    calibration.describe(features, [5, 2], captions).confidence,
  ])));
});
"""


def script(name):
    """Return the address of a script of the captioner's page."""
    content = (ROOT / "docs" / "captioner" / name).read_bytes()
    return f"data:text/javascript;base64,{base64.b64encode(content).decode()}"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_static_page_computes_the_statistics_of_the_command():
    path = ROOT / "docs" / "captioner" / "build.py"
    spec = importlib.util.spec_from_file_location("build", path)
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    calibration = make_calibration(make_space())
    engine = SimpleNamespace(vocabulary=VOCABULARY)
    pipeline = SimpleNamespace(calibration=calibration, engine=engine)
    content = build.calibration_json(pipeline).decode()
    assert "hot dog" in content
    a = np.random.default_rng(0).exponential(size=(20, 10, 4)).astype(np.float32)
    found = make_hypotheses(photos=20, beam=3)
    words = np.where(found.tokens > 0, np.maximum(found.tokens, 4), 0)
    found = found._replace(tokens=words)
    photos = []
    for n in range(len(a)):
        captions = []
        for w, length in enumerate(found.lengths[n].tolist()):
            ids = found.tokens[n, w, :length].tolist()
            log_p = found.word_log_probs[n, w, :length].tolist()
            pairs = zip(ids, log_p, strict=True)
            said = [{"word": word, "logProb": value} for word, value in pairs]
            captions.append({"words": said, "logProb": found.log_probs[n, w]})
        photos.append({"features": a[n].ravel().tolist(), "captions": captions})
    done = subprocess.run(
        ["node", "-e", STATISTICS_OF, script("confidence.js"), content]
        + [json.dumps(photos)],
        capture_output=True,
        text=True,
        check=True,
    )
    evidence = gather_evidence(calibration.space, a, found, VOCABULARY)
    expected = statistics_of(evidence, calibration.tags)
    judged = calibration.judge(a, found, VOCABULARY)
    for n, (values, confidence) in enumerate(json.loads(done.stdout)):
        row = [values[name] for name in STATISTICS]
        np.testing.assert_allclose(row, expected[n], rtol=1e-4, atol=1e-4)
        assert confidence == pytest.approx(judged[n].confidence, abs=1e-4)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_pages_print_the_figures_of_the_command():
    numbers = [0.718, 0.7199999, 0.72, 0.2, 0.1951, 0.1999, 0.67, 0.0, 0.9987]
    arguments = (json.dumps(numbers), json.dumps(list(CONFIDENCE_WORDS.values())))
    done = subprocess.run(
        ["node", "-e", PROGRAM, str(STATIC / "attention.js"), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    printed = json.loads(done.stdout)
    assert printed == [confidence_figures(number) for number in numbers]
    assert printed[0] == "0.718"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_word_of_the_static_page_is_that_of_the_command():
    numbers = [0.718, 0.72, 0.199, 0.2]
    url = script("confidence.js")
    done = subprocess.run(
        ["node", "-e", WORDS, url, json.dumps(numbers), json.dumps(CONFIDENCE_WORDS)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [
        [confidence_word(number), list(CONFIDENCE_WORDS.values())] for number in numbers
    ]
