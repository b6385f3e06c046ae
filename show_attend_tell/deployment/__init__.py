"""Exports for other systems, and the web server."""
