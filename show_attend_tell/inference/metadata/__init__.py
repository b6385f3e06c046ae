"""Write captions into the metadata of photos, and keep the words of persons."""
