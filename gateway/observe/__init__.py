"""What the process says about itself: logs, metrics, and the background tasks that both count."""
