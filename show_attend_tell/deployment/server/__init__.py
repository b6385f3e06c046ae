"""Serve the web page and POST /caption."""
