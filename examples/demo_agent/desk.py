"""The session that a child has attached, the model it has chosen, and the lists it reads. Owns all of that.

Every operation here is one that the real child leaves to its worker: params were checked, nothing else runs.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import catalog
from frames import Fields, Refused
from sessions import Session, Store


class Desk:
    """What lies before a child that is ready. OSError when its storage cannot be made."""

    def __init__(self, home: Path, cwd: str) -> None:
        self.store = Store(home, cwd)
        self.store.prepare()
        self.context_id = hashlib.sha256(f"{cwd}\0{os.path.realpath(home)}".encode()).hexdigest()
        self.session: Session | None = None
        self.selection = catalog.selection("rules")
        self._listings = {discover: catalog.Pager("sessions", "stale_revision") for discover in (False, True)}
        self._models = catalog.Pager("choices", "stale_catalog")

    def attached(self, session_id: str) -> Session:
        """The attached session, if it is this one."""
        if self.session is None:
            raise Refused("session_missing")
        if self.session.id != session_id:
            raise Refused("stale_session")
        return self.session

    def create(self) -> dict[str, Any]:
        """``session.create``."""
        return self._attach(self.store.create())

    def open(self, session_id: str) -> dict[str, Any]:
        """``session.open``."""
        if self.session is not None and self.session.id == session_id:
            return self._attach(self.session)
        return self._attach(self.store.open(session_id))

    def _attach(self, session: Session) -> dict[str, Any]:
        if self.session is not None and self.session is not session:
            self.session.release()
        self.session = session
        saved = [(r["model"], r["effort"]) for r in session.records if r["kind"] == "selection"]
        notices: list[str] = []
        self.selection = catalog.selection("rules")
        if saved and saved[-1][1] in catalog.MODELS.get(saved[-1][0], ()):
            self.selection = catalog.selection(*saved[-1])
        elif saved:
            notices.append("saved_selection_unavailable")
        revision = session.renew()
        return {"session_id": session.id, "durable": session.durable, "revision": revision, "notices": notices}

    def sessions(self, page: catalog.Page, *, discover: bool) -> dict[str, Any]:
        """``session.list`` and ``session.discover``: the same list, and each has its own snapshot of it."""
        pager = self._listings[discover]
        notices: list[str] = []
        if page[0] is None:
            found, notices = self.store.listing(self.session)
            pager.fresh(found)
        result: dict[str, Any] = {**pager.page(*page), "notices": notices}
        if discover:
            done = result["complete"]
            result["consistency"] = "provisional_until_complete"
            result["progress"] = "complete" if done else "page_entries"
            result["recovery"] = "none" if done else "continue_cursor"
        return result

    def models(self, page: catalog.Page, *, status: bool) -> dict[str, Any]:
        """``model.catalog`` and ``model.catalog.status``: one snapshot for both."""
        if page[0] is None:
            self._models.fresh(catalog.choices())
        result: dict[str, Any] = {**self._models.page(*page), "notices": [], "source": "cache_only"}
        if status:
            result |= {"configuration_reload": "restart_child", "providers": [catalog.PROVIDER_STATUS]}
        return result

    def refresh(self) -> dict[str, Any]:
        """``model.refresh``."""
        return {
            "provider": catalog.PROVIDER,
            "outcome": "refreshed",
            "reason": None,
            "catalog_revision": self._models.fresh(catalog.choices()),
            "catalog_error": None,
            "recovery": "reload_catalog",
            "configuration_reload": "restart_child",
            "selection_unchanged": True,
        }

    def select(self, params: Fields) -> dict[str, Any]:
        """``selection.set``: checked against the newest revisions, on disk first, then in effect."""
        session = self.attached(params["session_id"])
        if params["selection_revision"] != self.selection["revision"]:
            raise Refused("stale_selection")
        if params["catalog_revision"] != self._models.revision:
            raise Refused("stale_catalog")
        chosen = catalog.choose(self.selection, params)
        session.append("selection", model=chosen["model"], effort=chosen["requested_effort"])
        self.selection = chosen
        return {
            "session_id": session.id,
            "selection": chosen,
            "catalog_revision": self._models.revision,
            "scope": "session",
            "durable": True,
            "history_revision": session.renew(),
            "notices": [],
        }
