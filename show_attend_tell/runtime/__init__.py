"""Code independent of captions: TensorFlow, compilation, files, progress, errors."""
