"""Who may do what: API keys, session tokens, origins. It decides; the adapters ask."""
