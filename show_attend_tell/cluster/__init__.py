"""Work on the nodes of a Ray cluster."""
