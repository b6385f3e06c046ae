"""The encoder: VGG, its 8-bit weights, its trainable layers."""
