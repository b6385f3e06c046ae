"""Speed as ratios to a baseline of the same run; see README.md beside this file.

No two of TensorFlow, PyTorch and JAX are imported into one process: what is measured
runs in processes of its own, see :mod:`benchmarks.turns`.
"""
