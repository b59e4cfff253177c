"""Subscribers to events: what others get to see of a run while it goes on."""
