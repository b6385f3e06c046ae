"""Train an experiment with several seeds and settings, here or on a cluster."""
