"""Contracts: SQL of both databases, JSON Schemas of every wire record, the meters file's schema.

This package loads, installs and compares contracts; it decides nothing about usage.
"""
