"""The web page and POST /caption."""
