"""The Gantt chart of a timeline, and what to see in it."""
