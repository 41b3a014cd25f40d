"""Running one step: prepare, perform, finalize."""
