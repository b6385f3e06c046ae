"""The word embedding for TensorBoard's projector."""

import os
from pathlib import Path

import numpy as np
from tensorboard.plugins import projector

from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary

WORDS = 1000  # the most frequent, so that a run folder stays small
_VECTORS, _NAMES = "embedding.tsv", "embedding-words.tsv"


def write_embedding(
    folder: str | Path, embedding: np.ndarray, vocabulary: Vocabulary
) -> None:
    """Write the vectors of the most frequent words into a run's folder.

    Args:
        folder: of the run, with its TensorBoard logs.
        embedding: E, (K, m).
        vocabulary: its K words, the most frequent first.
    """
    folder = Path(folder)
    chosen = np.s_[len(SPECIAL) : len(SPECIAL) + WORDS]
    temporary = folder / (_VECTORS + ".tmp")
    np.savetxt(temporary, np.asarray(embedding)[chosen], fmt="%.3g", delimiter="\t")
    os.replace(temporary, folder / _VECTORS)
    names = "".join(f"{word}\n" for word in vocabulary.words[chosen])
    (folder / _NAMES).write_text(names, encoding="utf-8")
    config = projector.ProjectorConfig()
    config.embeddings.add(
        tensor_name="word embedding", tensor_path=_VECTORS, metadata_path=_NAMES
    )
    (folder / "projector_config.pbtxt").write_text(str(config), encoding="utf-8")
