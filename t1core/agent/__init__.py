"""One trial's agent: prompt, protocol, token-true history, context budget, stop reasons. Knows no trainer."""
