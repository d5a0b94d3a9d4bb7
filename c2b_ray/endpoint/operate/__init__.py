"""Functions to operate an endpoint: metrics, webhooks, retention, backups."""
