"""Models beside the captioner that attend to parts of a picture, one folder each."""
