"""A small shop that uses geneva_drive. Run it with ``make demo``."""
