"""The database servers of the test suite: found, or started, and described to Django.

Nothing here needs Django, so that it also runs before an environment exists.
"""
