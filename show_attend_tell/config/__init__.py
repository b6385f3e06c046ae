"""Settings of experiments, read from TOML, and run folders."""

MOST_BEAM = 100  # hypotheses of a photo; limits memory
