"""How a scenario is played: its stage, what is done there, what is seen, and what came of it."""
