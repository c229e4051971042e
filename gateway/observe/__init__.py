"""What operators see: logs, metrics. Nothing enters here that redaction has not passed."""
