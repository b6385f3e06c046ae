"""A Transformer decoder with the interface of the LSTM."""
