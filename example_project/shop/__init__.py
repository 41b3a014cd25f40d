"""Orders, and what becomes of them."""
