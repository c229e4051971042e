"""The agent's side: one ``serve --stdio`` child per session, driven over pipes."""
