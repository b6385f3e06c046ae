"""Settings of experiments, read from TOML, and run folders."""
