"""Training agents: credit assignment, policies, losses, the loop. Credit assignment needs NumPy alone."""
