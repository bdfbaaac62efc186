"""Module 10: energy, power limits, plans, slack."""
