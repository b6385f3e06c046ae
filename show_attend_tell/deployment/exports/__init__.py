"""Other formats of a model: SavedModel, LiteRT, fewer bits."""
