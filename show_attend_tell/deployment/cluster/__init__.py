"""Caption millions of photos in the workers of a Ray cluster."""
