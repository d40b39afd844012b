"""Shared by the tests: tasks and runs that compile fast, environments of known behaviour, and comparisons."""
