"""What has nothing to do with captions: TensorFlow, compiling, files, progress."""
