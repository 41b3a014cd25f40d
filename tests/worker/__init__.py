"""Claiming and looping, in this process."""
