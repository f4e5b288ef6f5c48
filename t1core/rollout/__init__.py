"""The rollout side: engines behind one contract, and the trials that use them. Knows nothing of Megatron."""
