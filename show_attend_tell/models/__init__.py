"""The networks of the paper, and the encoder whose features they read."""
