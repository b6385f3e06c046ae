"""Train, measure and run classifiers of digits: by glimpses, windows, or whole."""
