"""Draw scenes of coloured shapes, and train their encoder."""
