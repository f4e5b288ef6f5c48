"""The practice pool: small templated terminal tasks with their solutions and exact terminal output."""
