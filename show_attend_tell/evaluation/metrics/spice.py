"""Compute SPICE with pycocoevalcap's jar; on request, for its size and licence."""

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from show_attend_tell.evaluation.metrics.java import jar_path, run_java
from show_attend_tell.runtime.errors import JavaError

_CORENLP = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
_OUTPUT_LIMIT = 1 << 20  # bytes; it runs with -silent
_SECONDS_PER_CAPTION = 2  # to parse 5 references on a slow core


def spice(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float
) -> list[float]:
    """Return the SPICE F-score of each tokenized caption, 0 to 1.

    Args:
        hypotheses: N captions, words joined by spaces.
        references: references of each caption, in the same form.
        timeout: seconds for Java to start; time per caption is added.

    Raises:
        JavaError: Java or Stanford CoreNLP is absent, or the program failed.
    """
    program = jar_path("spice", "spice-1.0.jar")
    if not all(Path(program).with_name("lib").joinpath(n).is_file() for n in _CORENLP):
        raise JavaError(
            "SPICE (AGPL) needs Stanford CoreNLP 3.6.0, about 400 MB: run "
            "`python -m pycocoevalcap.spice.get_stanford_models` once"
        )
    rows = [
        {"image_id": index, "test": hypothesis, "refs": list(texts)}
        for index, (hypothesis, texts) in enumerate(
            zip(hypotheses, references, strict=True)
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.json"), Path(folder, "out.json")
        source.write_text(json.dumps(rows), encoding="utf-8")
        arguments = ["-Xmx8G", "-jar", program, str(source), "-out", str(target)]
        arguments += ["-subset", "-silent"]
        seconds = timeout + _SECONDS_PER_CAPTION * len(rows)
        run_java("SPICE", arguments, "", seconds, _OUTPUT_LIMIT)
        return _read_scores(target, len(rows))


def _read_scores(path: Path, count: int) -> list[float]:
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        values = [float(item["scores"]["All"]["f"]) for item in results]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise JavaError(f"SPICE: java wrote no usable scores: {error!r}") from None
    if len(values) != count or not all(map(math.isfinite, values)):
        raise JavaError(f"SPICE: java scored {len(values)} captions of {count}")
    return values
