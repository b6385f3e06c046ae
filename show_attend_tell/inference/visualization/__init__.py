"""Draw figures, interactive pages and galleries of captions."""
