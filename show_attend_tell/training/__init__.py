"""The training loop, its objectives, checkpoints and logs."""
