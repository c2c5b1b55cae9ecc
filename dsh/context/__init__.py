"""What an agent is told about its surroundings: instructions, references, time (floor 4)."""
