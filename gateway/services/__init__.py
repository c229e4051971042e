"""Services that join model and bus: who owns a session, who reads it, what is due. No wire format is known here."""
