"""Train captioners: the loop, its objectives, checkpoints and logs."""
