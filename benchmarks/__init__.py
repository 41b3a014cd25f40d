"""Benchmarks. They compare variants within one run, and assert no times."""
