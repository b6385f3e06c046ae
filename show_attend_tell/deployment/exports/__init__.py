"""Other formats of a model: SavedModel, LiteRT, ONNX, fewer bits."""
