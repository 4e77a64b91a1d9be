"""Adapters: one port each, no rules."""
