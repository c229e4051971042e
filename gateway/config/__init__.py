"""Configuration: its shape, where values come from, and the folder that a node keeps its state in. No network."""
