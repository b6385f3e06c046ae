"""The encoder, the captioner of the paper, and the file of a trained model."""
