"""Acceptance tests with real worker processes."""
