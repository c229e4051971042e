"""The HTTP side: sessions, their events and stream, registrations and calls, as the HTTP protocol has them.

``routes.routes`` is the way in. An adapter translates: what may happen to a session is decided by the services.
"""
