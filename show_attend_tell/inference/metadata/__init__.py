"""Write captions into photos' metadata, and keep descriptions written by people."""
