"""Heroes with keys of every kind. Installed by the tests that need them, not by the settings."""
