"""Settings of experiments, read from TOML, and run folders."""

MAX_BEAM = 100  # hypotheses of a photo; limits memory
MIN_TEMPERATURE = 0.001  # below it a softmax in float32 may overflow
