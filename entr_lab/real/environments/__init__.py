"""Tasks: what a prompt is, what a tool answers, what a trajectory is worth. Token in, token out."""
