"""Write the captioner's page into the site: code, models and ONNX Runtime.

The browser's build of ONNX Runtime is fetched once, from the npm registry, and kept in
``build/``; its version and hash are fixed here. Where it cannot be fetched, the site is
built without the captioner.
"""

import base64
import gzip
import hashlib
import json
import logging
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.files import atomic_write

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSION = "1.30.0"
ADDRESS = f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
SHA512 = (
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4C"
    "XAfKYQ=="
)
SCRIPTS = ("ort.wasm.min.mjs", "ort.jspi.min.mjs")
WASM = ("ort-wasm-simd-threaded", "ort-wasm-simd-threaded.jspi")
SHARED = ROOT / "show_attend_tell" / "deployment" / "server" / "static"
PAGE = "captioner/index.md"
_LOG = logging.getLogger("mkdocs.hooks.captioner")


def on_page_content(content, page, config, files):
    """Insert the page's elements."""
    if page.file.src_uri != PAGE:
        return content
    elements = (HERE / "page.html").read_text(encoding="utf-8")
    return content.replace('<div id="captioner"></div>', elements)


def on_post_build(config):
    """Add the files that the page loads."""
    try:
        write_files(Path(config.site_dir) / "captioner")
    except (OSError, ImportError) as error:
        _LOG.info("The site has no captioner: %s", error)


def write_files(folder: Path) -> None:
    """Write what the page loads: scripts as they are, other files compressed.

    ``files.json`` has the size and the SHA-256 of each compressed file.

    Raises:
        OSError: ONNX Runtime cannot be fetched, or is not the expected file.
        ImportError: a package of the extra ``[docs]`` is absent.
    """
    from show_attend_tell.deployment.exports.onnx_graphs import export_onnx
    from show_attend_tell.inference.pipeline import load
    from show_attend_tell.models.pretrained import shipped_model

    folder.mkdir(parents=True, exist_ok=True)
    archive, files = fetch_runtime(), {}
    with tarfile.open(archive) as package, tempfile.TemporaryDirectory() as temporary:

        def member(name: str) -> bytes:
            return package.extractfile(f"package/dist/{name}").read()

        for name in (*SCRIPTS, *(f"{name}.mjs" for name in WASM)):
            (folder / name).write_bytes(member(name))
        models = Path(temporary) / "models"
        export_onnx(shipped_model(), models)
        contents = {path.name: path.read_bytes() for path in sorted(models.iterdir())}
        contents["confidence.json"] = calibration_json(load(engine="numpy"))
        contents |= {f"{name}.wasm": member(f"{name}.wasm") for name in WASM}
    for name, content in contents.items():
        packed = gzip.compress(content, mtime=0)  # the same bytes in each build
        (folder / f"{name}.gz").write_bytes(packed)
        digest = hashlib.sha256(packed).hexdigest()
        files[name] = {"bytes": len(packed), "sha256": digest}
    for name in ("attention.js", "controls.js"):
        shutil.copyfile(SHARED / name, folder / name)
    (folder / "files.json").write_text(json.dumps(files), encoding="utf-8")


def calibration_json(pipeline) -> bytes:
    """Return what confidence.js reads, from a pipeline with a calibration."""
    from show_attend_tell.data.nouns import nouns_of, singular
    from show_attend_tell.inference import confidence
    from show_attend_tell.inference.result import CONFIDENCE_WORDS

    calibration = pipeline.calibration
    vocabulary = pipeline.engine.vocabulary.words
    places = {}  # of the forms of a noun among the content words
    for place, word in enumerate(calibration.space.words.tolist()):
        places.setdefault(singular(vocabulary[word]), []).append(place)
    arrays = vars(calibration.space) | vars(calibration)
    names = confidence.STATISTICS
    content = {
        "words": arrays.pop("words").tolist(),
        "statistics": names,
        "columns": {
            "familiarity": [names.index(name) for name in confidence.FAMILIARITY],
            "quality": [names.index(name) for name in confidence.QUALITY],
        },
        "confidence_words": CONFIDENCE_WORDS,
        "tags": calibration.tags.coefficients.tolist(),
        "nouns": [next(iter(nouns_of([word])), None) for word in vocabulary],
        "compounds": compounds_of(vocabulary),
        "places": places,
        "arrays": {
            name: base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()
            for name, values in arrays.items()
            if isinstance(values, np.ndarray)
        },
    }
    return json.dumps(content).encode()


def compounds_of(vocabulary) -> dict[str, str]:
    """Return the nouns of two words by the words' ids, ``{"12 345": "hot dog"}``."""
    from show_attend_tell.data.nouns import COMPOUNDS, singular

    ids = {word: k for k, word in enumerate(vocabulary)}
    found = {}
    for compound in COMPOUNDS:
        first, second = compound.split()
        for word, k in ids.items():
            if first in ids and singular(word) == second:
                found[f"{ids[first]} {k}"] = compound
    return found


def fetch_runtime() -> Path:
    """Return the package of ONNX Runtime, fetched unless it was before.

    Raises:
        OSError: it cannot be fetched, or its hash is another.
    """
    path = ROOT / "build" / f"onnxruntime-web-{VERSION}.tgz"
    if not path.exists():
        try:
            with urllib.request.urlopen(ADDRESS, timeout=60) as response:
                content = response.read()
        except OSError as error:
            raise OSError(f"{ADDRESS} cannot be fetched ({error})") from None
        if base64.b64encode(hashlib.sha512(content).digest()).decode() != SHA512:
            raise OSError(f"{ADDRESS} has another hash than the one expected")
        atomic_write(path, content)
    return path
