"""Who holds what part of a network, and which messages that needs."""
