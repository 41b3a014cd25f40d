"""Orders and their workflows."""
