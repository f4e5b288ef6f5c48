"""The model: a Qwen3.5-MoE shaped network (GatedDeltaNet, gated attention, experts) as a Megatron-core spec.

It runs on a CPU over gloo and on GPUs from the same files, and trades weights with Hugging Face checkpoints.
Nothing here knows of rewards, batches or rollouts.
"""
