"""The decoders of a captioner, with the methods that it requires of them."""
