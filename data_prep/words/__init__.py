"""Render training words for a reader, and read the crops of IIIT5K."""
