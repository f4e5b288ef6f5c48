"""What an engine answers, held against what it was asked: garbage is the engine's failure, and never reaches a row.

Routes are held against the whole trial where its rows are assembled (`routing.validate`); ids past the prompt are what
the next call would be refused for, and log-probs or versions that make no sense would only show in a metric.
"""

import numpy as np

from t1core.records import Generation, SamplingParams

_REASONS = ("stop", "length", "abort")
_ROUNDING = 1e-3  # of a log-prob near 0, in the precision that an engine computes it in


class EngineGarbled(RuntimeError):
    """The engine answered with something that no sampling can give."""


def check_answer(
    answer: Generation, *, sampling: SamplingParams, request_id: str, vocab_size: int | None
) -> None:
    """Raise EngineGarbled, naming the field and its value, for an answer that cannot be what was asked for.
    `vocab_size`: of the model; None where nobody knows it."""
    problem = _problem(answer, max_new_tokens=sampling.max_new_tokens, vocab_size=vocab_size)
    if problem is not None:
        raise EngineGarbled(f"call {request_id}: the engine answered garbage: {problem}")


def _problem(answer: Generation, *, max_new_tokens: int, vocab_size: int | None) -> str | None:
    ids, logprobs, versions = answer.output_ids, answer.output_logprobs, answer.output_versions
    if not len(ids) == len(logprobs) == len(versions):
        return f"{len(ids)} output_ids, {len(logprobs)} output_logprobs and {len(versions)} output_versions"
    if answer.finish_reason not in _REASONS:
        return f"finish_reason={answer.finish_reason!r}, none of {', '.join(_REASONS)}"
    if len(ids) > max_new_tokens:
        return f"{len(ids)} tokens where max_new_tokens={max_new_tokens}"
    if not len(ids):
        is_abort = answer.finish_reason == "abort"
        return None if is_abort else f"no token, and finish_reason={answer.finish_reason!r}"
    if ids.min() < 0 or (vocab_size is not None and ids.max() >= vocab_size):
        return f"output_ids span {ids.min()}..{ids.max()}, and the vocabulary has {vocab_size} tokens"
    if not np.isfinite(logprobs).all() or logprobs.max() > _ROUNDING:
        return f"output_logprobs span {logprobs.min()}..{logprobs.max()}, and none may be above 0"
    if (np.diff(versions) < 0).any():
        return f"output_versions fall: {versions.tolist()[:8]}"
    return None
