"""Whole runs, by real worker processes."""
