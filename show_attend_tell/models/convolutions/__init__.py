"""The convolutions of VGG: stored in 8 bits per weight, and fine-tuned."""
