"""Files as version 0.3 wrote them: models of fewer bits, rerankers."""

import io
import json
import zipfile

import h5py
import numpy as np
from zip_members import hdf5, unzipped, zipped

from show_attend_tell.runtime.quantisation import quantise

CONFIG, WEIGHTS = "config.json", "model.weights.h5"


def save_old(model, path, eight_bit=None, changes=None):
    """Save a Keras model as version 0.3 did.

    Args:
        model: the model.
        path: a ``.keras`` file.
        eight_bit: whether matrices have 8 bits, as of ``export``; None for float32.
        changes: values of the configuration.
    """
    model.save(path)
    members = unzipped(path.read_bytes())
    config = json.loads(members[CONFIG])
    config["config"] |= {"convolutions": []} | (changes or {})
    members[CONFIG] = json.dumps(config).encode()
    if eight_bit is not None:
        members[WEIGHTS] = smaller(members[WEIGHTS], eight_bit)
    path.write_bytes(zipped(members, zipfile.ZIP_DEFLATED))


def smaller(content: bytes, eight_bit: bool) -> bytes:
    """Return weights in HDF5 in float16, or with 8 bits and ``_scale``."""
    old = h5py.File(io.BytesIO(content))
    arrays = {}
    old.visititems(
        lambda name, x: arrays.update({name: x[()]} if hasattr(x, "shape") else {})
    )

    def write(file):
        for name, values in arrays.items():
            options = {"compression": "gzip", "shuffle": True} if values.ndim else {}
            if eight_bit and values.ndim > 1:
                q, scale = quantise(values)
                file.create_dataset(name, data=q)
                file.create_dataset(name + "_scale", data=scale)
            elif values.ndim:
                file.create_dataset(name, data=values.astype("f2"), **options)
            else:
                file.create_dataset(name, data=values)

    return hdf5(write)


def save_old_reranker(reranker, path, **changes):
    """Save a reranker as version 0.3 did."""
    ngrams = np.zeros((len(reranker.vectors.ngrams), 4), np.int32)
    for row, ngram in zip(ngrams, reranker.vectors.ngrams, strict=True):
        row[: len(ngram)] = ngram
    basis, basis_scale = quantise(np.float32(reranker.basis).T)
    landmarks, scale = quantise(np.float32(reranker.landmarks))
    about = {
        "format": 2,
        "gamma": reranker.gamma,
        "vocabulary": reranker.vocabulary,
        "encoder": reranker.encoder_identity,
        **changes,
    }
    np.savez_compressed(
        path,
        about=json.dumps(about),
        ngrams=ngrams,
        idf=reranker.vectors.idf,
        mean=np.float32(reranker.mean),
        deviation=np.float32(reranker.deviation),
        coefficients=np.float16(reranker.coefficients),
        basis=basis.T,
        basis_scale=basis_scale,
        landmarks=landmarks,
        landmarks_scale=scale,
    )
