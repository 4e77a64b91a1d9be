"""Capture: how rows of a service's outbox reach Kafka, and how we know that none was left out."""
