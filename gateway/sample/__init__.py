"""A small travel service to try the gateway against; nothing of the gateway depends on it."""
