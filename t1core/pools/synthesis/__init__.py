"""Harder tasks from tasks: composed from the practice families, or written by a model, and gated by the audit."""
