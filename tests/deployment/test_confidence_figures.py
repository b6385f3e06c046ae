"""The confidence that the pages print, by their JavaScript."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

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
    const found = calibration.describe([], [1, 1], { words: [] });
    return [found.confidence_word, found.confidence_limits];
  });
  console.log(JSON.stringify(answers));
});
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_pages_print_the_figures_of_the_command():
    numbers = [0.498, 0.4999999, 0.5, 0.2, 0.1951, 0.1999, 0.67, 0.0, 0.9987]
    arguments = (json.dumps(numbers), json.dumps(list(CONFIDENCE_WORDS.values())))
    done = subprocess.run(
        ["node", "-e", PROGRAM, str(STATIC / "attention.js"), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    printed = json.loads(done.stdout)
    assert printed == [confidence_figures(number) for number in numbers]
    assert printed[0] == "0.498"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_word_of_the_static_page_is_that_of_the_command():
    numbers = [0.498, 0.5, 0.199, 0.2]
    content = (ROOT / "docs" / "captioner" / "confidence.js").read_bytes()
    url = f"data:text/javascript;base64,{base64.b64encode(content).decode()}"
    done = subprocess.run(
        ["node", "-e", WORDS, url, json.dumps(numbers), json.dumps(CONFIDENCE_WORDS)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [
        [confidence_word(number), list(CONFIDENCE_WORDS.values())] for number in numbers
    ]
