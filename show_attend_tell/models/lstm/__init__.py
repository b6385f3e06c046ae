"""The decoder of the paper: attention, LSTM, hard attention."""
