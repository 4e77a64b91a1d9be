"""Everything that stands in for the world on one machine: the native stack and its supervisor."""
