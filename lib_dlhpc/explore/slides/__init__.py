"""Slides of a module, made of what its page has: questions, figures, checks, summary."""
