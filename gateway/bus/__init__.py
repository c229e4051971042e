"""The dispatch bus: Redis or Valkey, and the only package that knows it.

What it promises: a change is applied before it is acknowledged; a call settles once, whoever races; a session's log
has no gaps; whoever lives keeps a deadline; an owner is fenced by an epoch that every script checks.
"""
