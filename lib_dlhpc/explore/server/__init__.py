"""Serve notebooks as pages: Voila in this process, who may visit, the page template."""
