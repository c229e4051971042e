"""HTTP pieces that no protocol owns: host checks, body bounds, health, the demo page."""
