"""Speed as ratios to a baseline of the same run; see README.md beside this file.

Nothing here imports TensorFlow, PyTorch or JAX before a process of its own was started
for it.
"""
