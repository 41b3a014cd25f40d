"""Running what the documentation shows."""
