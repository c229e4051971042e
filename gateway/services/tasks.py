"""The services' name for background tasks; they live below the bus, whose pumps are tasks too."""

from gateway.observe.tasks import Tasks

__all__ = ["Tasks"]
