"""The learner's process: Megatron actor and critic, packing, optimisers, behaviour snapshots, checkpoints.

It knows nothing of sandboxes, prompts or engines: batches come in, weights and metrics go out.
"""
