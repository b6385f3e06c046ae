"""Settings of experiments, read from TOML, and run folders."""

MAX_BEAM = 100  # hypotheses of a photo; limits memory
