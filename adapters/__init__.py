"""Thin translators between a protocol and the services: bytes in, commands out. They never import each other."""
