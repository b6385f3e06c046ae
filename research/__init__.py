"""Programs that measure and compare the project; none of them is installed."""
