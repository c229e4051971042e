"""The ``toolrelay`` command."""
