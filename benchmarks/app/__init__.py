"""The app of the benchmarks."""
