"""Settings: flags over environment over TOML over defaults; unknown names are refused with the nearest known one."""
