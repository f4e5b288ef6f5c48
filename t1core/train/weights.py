"""Weights-only directories in Hugging Face form: what T1 keeps of a run, and what warms the next critic."""

import os
import shutil
from pathlib import Path

import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn

from t1core.model.convert import export_hf
from t1core.model.shape import ModelShape
from t1core.rl.hl_gauss import ValueBins
from t1core.store.atomic import naming_full_disk
from t1core.train.directories import holds_value_head, resolved, sync, write_value_bins
from t1core.train.learner import Role

FILE = "model.safetensors"
# What a Hugging Face directory holds of its tokenizer and chat format.
TOKENIZER_FILES = (
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template*", "generation_config.json"),
)


def save_weights(
    directory: str | os.PathLike,
    *,
    model: nn.Module,
    shape: ModelShape,
    role: Role,
    tokenizer: str | os.PathLike | None = None,
    value_bins: ValueBins | None = None,
) -> None:
    """Write config.json and model.safetensors in the model's precision; a critic's with its value head, and what
    its bins are if it has any.

    `tokenizer`: directory whose tokenizer files go along, so that the result is complete where a policy is asked for.
    Every rank must call. Each file appears whole or not at all, and other files of the directory (a
    tokenizer, say) are left alone. ValueError if the directory holds weights of the other role or weights in
    other files.
    """
    target = Path(resolved(directory))
    found = holds_value_head(target)
    if found is not None and found != (role == "critic"):
        other = "critic" if found else "actor"
        raise ValueError(f"{target} holds the {other}'s weights; give the {role} a directory of its own")
    strangers = sorted(path.name for path in target.glob("*.safetensors") if path.name != FILE)
    if strangers:
        raise ValueError(
            f"{target} holds {strangers[0]}, which would be read along with {FILE}; use an empty directory"
        )
    state = export_hf(model, shape)
    if dist.get_rank() == 0:
        partial = target / f".{FILE}.partial"
        try:
            with naming_full_disk(target):
                target.mkdir(parents=True, exist_ok=True)
                shape.write_config(target)
                if tokenizer is not None and resolved(tokenizer) != str(target):
                    for pattern in TOKENIZER_FILES:
                        for path in Path(tokenizer).glob(pattern):
                            shutil.copyfile(path, target / path.name)
                            sync(target / path.name)
                if role == "critic":
                    write_value_bins(target, value_bins)
                save_file(state, partial, metadata={"format": "pt"})
                sync(partial)
                partial.replace(target / FILE)
                sync(target)
        finally:
            partial.unlink(missing_ok=True)
    dist.barrier()
