"""Converters: tasks of other forms, written as directories in Harbor's layout, each gated before it is kept."""
