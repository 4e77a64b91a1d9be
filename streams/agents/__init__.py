"""The agents: each takes one stream event, asks the core what follows, and does it."""
