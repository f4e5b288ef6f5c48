"""Four repairs that megatron-core 0.19.2 needs to resume `torch.optim` Adam under its distributed optimiser.

Three concern machines without transformer-engine and Apex, with or without a GPU. Without them a resumed run
either stops (missing 'step' key, failed assertion) or, worse, goes on with wrong bias corrections. The fourth is about
settings: Megatron finds saved parameter groups by their learning rate, so another one is a missing key, and it puts
back the weight decay and the betas of the run that saved, whatever the present one asks for.
"""

import collections
from typing import Any

import torch

_SETTINGS = ("lr", "max_lr", "min_lr", "betas", "eps", "weight_decay")


def apply() -> None:
    """Repair loading: a state without 'step' is accepted, parameters stop sharing one step counter, and Adam's settings
    stay those of the optimiser that loads. Idempotent.
    """
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    if getattr(DistributedOptimizer, "_t1_resume_repaired", False):
        return
    set_state = DistributedOptimizer._set_main_param_and_optimizer_states
    load = DistributedOptimizer.load_state_dict

    def set_state_without_step(self: Any, model_param: Any, tensors: dict[str, Any]) -> Any:
        return set_state(self, model_param, collections.defaultdict(lambda: None, tensors))

    def load_with_own_steps_and_settings(self: Any, state_dict: Any) -> Any:
        own = {name: self.optimizer.param_groups[0][name] for name in _SETTINGS}
        for group in state_dict["optimizer"]["param_groups"]:
            group.update(own)
        result = load(self, state_dict)
        # One tensor is handed to every parameter; Adam would advance it once for each of them.
        for state in self.optimizer.state.values():
            if torch.is_tensor(state.get("step")):
                state["step"] = state["step"].detach().clone()
        return result

    DistributedOptimizer._set_main_param_and_optimizer_states = set_state_without_step
    DistributedOptimizer.load_state_dict = load_with_own_steps_and_settings
    DistributedOptimizer._t1_resume_repaired = True


def prime(optimizer: Any) -> None:
    """Give a fresh optimiser empty Adam states, which its `sharded_state_dict(is_loading=True)` takes for
    granted.
    """
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        for group in part.optimizer.param_groups:
            for param in group["params"]:
                if not part.optimizer.state.get(param):
                    part.optimizer.state[param] = {
                        "step": torch.tensor(0.0),
                        "exp_avg": torch.zeros_like(param),
                        "exp_avg_sq": torch.zeros_like(param),
                    }
