"""Models behind Ray Serve: one file per deployment, handles that are roles, and the apps that configurations name."""
