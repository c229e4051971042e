"""The clients' side over one WebSocket: ``toolrelay.v1``."""
