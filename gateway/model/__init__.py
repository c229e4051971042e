"""Values and rules: no I/O, no clock, no asyncio. Whatever needs the time takes it as ``now``."""
