"""Pools judged and repaired by a language model behind any OpenAI-compatible endpoint."""
