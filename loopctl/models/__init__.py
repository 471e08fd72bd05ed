"""Talking to models: the client protocol, resilience, and one folder for each dialect."""
