"""Generate captions of a split, score them, and measure their attention."""
