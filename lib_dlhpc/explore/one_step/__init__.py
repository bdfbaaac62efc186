"""Module 01: one step."""
