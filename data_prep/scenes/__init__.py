"""Draw scenes of coloured shapes."""
