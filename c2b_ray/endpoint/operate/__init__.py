"""What an endpoint needs to be operated: measurements, webhooks, retention, backups."""
