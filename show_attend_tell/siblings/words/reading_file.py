"""Read many crops into a JSON Lines file, and resume an interrupted run."""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from show_attend_tell.inference.batch import (
    BatchReport,
    distinct_photos,
    file_identity,
)
from show_attend_tell.inference.journal import Journal
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.inference.result import Failure
from show_attend_tell.runtime.errors import OutputFileError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.lexicon import Lexicon
from show_attend_tell.siblings.words.reading import Reading, read_files


class WordJournal(Journal):
    """An open JSON Lines file of words, see :class:`Journal`."""

    texts = ("path", "word", "made_by")
    numbers = ("log_prob",)
    noun = "words"

    def row_of(self, result: Reading) -> dict:
        """Return the row of a word."""
        return {
            "path": os.fspath(result.path),
            "word": result.word,
            "log_prob": round(result.log_prob, 6),
            "made_by": self.made_by,
        }


def require_jsonl(out: Path) -> None:
    """Raise an OutputFileError unless a file of words ends in ``.jsonl``."""
    if out.suffix.lower() != ".jsonl":
        raise OutputFileError(
            f"`out` must end in .jsonl. Received: {out}; choose another name"
        )


def read_into_file(
    search: Searcher,
    model_file: Path,
    paths: Iterable[str | os.PathLike],
    out: str | Path,
    lexicon: Lexicon | None = None,
    shown: bool = True,
) -> BatchReport:
    """Write the words of many crops into a file, of which an earlier run resumes.

    Args:
        search: the compiled reader.
        model_file: the file of its model, by which rows are recognised as its own.
        paths: crops, and folders whose crops are read, nested ones too.
        out: a ``.jsonl`` file.
        lexicon: see :func:`reading.best_readings`.
        shown: whether to show a progress bar.

    Raises:
        OutputFileError: the ending of `out` is another, or see :class:`Journal`.
    """
    out = Path(out)
    require_jsonl(out)
    found = distinct_photos(find_photos(paths))
    author = f"{file_identity(model_file)}, beam {search.beam}"
    if lexicon is not None:
        author += f", lexicon {lexicon.digest[:12]}"
    with WordJournal(out, author) as journal:
        left = [one for one in found if isinstance(one, Failure) or one not in journal]
        present, failures = len(found) - len(left), []
        results = read_files(search, left, lexicon)
        with progress_bar(len(found), "crop", "read", done=present, shown=shown) as bar:
            while batch := list(itertools.islice(results, search.batch)):
                journal.append(one for one in batch if isinstance(one, Reading))
                failures += [one for one in batch if isinstance(one, Failure)]
                bar.update(len(batch))
    nouns = ("words", "crops")
    written = len(left) - len(failures)
    return BatchReport(out, written, present, tuple(failures), nouns)
