"""What the labs of labs/ stand on: emulated ranks, a recorded step, findings in words."""
