"""Train a captioner on several workers, synchronously and data-parallel."""
