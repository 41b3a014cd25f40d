"""Benchmarks: ratios measured in one run. Nothing here asserts a time."""
