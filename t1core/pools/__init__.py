"""Pools of tasks as something to trust: executable audit, converters, reports over the index of `t1core.tasks`."""
