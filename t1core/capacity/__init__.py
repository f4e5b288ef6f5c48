"""Capacity: what a plan takes of each GPU and host, which plans fit, how to split GPUs over rollout and training.

Pure arithmetic: nothing here knows torch, Ray or a machine. `t1 plan` prints it, `t1 calibrate` measures coefficients,
and a campaign that names its GPUs' memory is held to it before it starts.
"""
