"""A small shop, to see geneva_drive at work: ``make demo``."""
