"""Measure speed as ratios to a baseline of the same run; see README.md here.

No two of TensorFlow, PyTorch and JAX are imported into one process: contenders run in
separate processes, see :mod:`benchmarks.turns`.
"""
