"""toolrelay: the gateway between local agents and the tools that browsers, extensions and workers offer.

Layers, outermost first; imports point one way (import-linter holds it):
``cli > server > app > adapters > web, auth > services > bus > observe > config > model``.
"""

__version__ = "0.1.0"
