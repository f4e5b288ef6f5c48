"""How a call's prompt relates to the tokens of an earlier call: strict, normalized, retokenized, or none of
these.

With p, a the earlier call's prompt and sampled ids, and q the later prompt (T1 section 4.2):
- strict: p || a is a prefix of q;
- normalized: p without its last s tokens || a without its last u tokens is a prefix of q, s + u as small as
  possible over s in 0..96 and u in 0..16 (ties: smaller u). Ours also asks that at least half of the sampled
  tokens stay: with all of a short turn dropped, any history would match anything;
- retokenized: a stretch of q where the earlier turn belongs has the text of a. Whoever rendered q may have told
  which stretch (`ModelCall.copied_turns`); if not, it is looked for right behind p.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from t1core.records import CopiedTurn, ModelCall, PrefixRelation

MAX_PROMPT_TRIM = 96  # the shared template suffix, or generation prompt
MAX_OUTPUT_TRIM = 16  # stop and glue tokens

TextOf = Callable[[np.ndarray], str]


@dataclass(frozen=True)
class Match:
    """`matched` tokens of the later prompt stand for the earlier call; what follows them is new context."""

    relation: PrefixRelation
    matched: int
    prompt_trim: int = 0
    output_trim: int = 0


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n


def match_strict(prompt: np.ndarray, sampled: np.ndarray, *, later: np.ndarray) -> Match | None:
    p, total = len(prompt), len(prompt) + len(sampled)
    if (
        len(later) < total
        or not np.array_equal(later[p:total], sampled)
        or not np.array_equal(later[:p], prompt)
    ):
        return None
    return Match(PrefixRelation.STRICT, matched=total)


def match_normalized(prompt: np.ndarray, sampled: np.ndarray, *, later: np.ndarray) -> Match | None:
    """Minimise s + u over the whole grid with at most one comparison a column, and most often one in all.

    Columns below the first difference of p and q cannot hold. In a column, u is what one common prefix leaves
    over; four probes rule a column out before it is compared, and a column beyond the best sum ends the search.
    """
    p, a = len(prompt), len(sampled)
    max_u = min(MAX_OUTPUT_TRIM, a // 2)
    num_kept = a - max_u  # sampled tokens that any match keeps
    if not num_kept:
        return None
    smallest_s = p - common_prefix(prompt, later)
    trims = np.arange(max(smallest_s, p + num_kept - len(later)), min(MAX_PROMPT_TRIM, p) + 1)
    for probe in {0, num_kept // 3, 2 * num_kept // 3, num_kept - 1}:
        trims = trims[later[p - trims + probe] == sampled[probe]]
    best: Match | None = None
    for s in trims.tolist():
        if best is not None and s > best.prompt_trim + best.output_trim:
            break
        u = a - common_prefix(sampled, later[p - s :])
        if u > max_u:
            continue
        if best is None or (s + u, u) < (best.prompt_trim + best.output_trim, best.output_trim):
            best = Match(PrefixRelation.NORMALIZED, matched=p - s + a - u, prompt_trim=s, output_trim=u)
    return best


def match_retokenized(
    prompt: np.ndarray,
    sampled: np.ndarray,
    *,
    later: np.ndarray,
    text_of: TextOf,
    copied: CopiedTurn | None = None,
) -> Match | None:
    """The stretch of the later prompt that has the text of `sampled`.

    With `copied`, the place where the earlier turn was found when the later prompt was rendered, one comparison
    of texts tells; the prompts may then differ in up to 96 tokens before it (a generation prompt that is
    rendered otherwise in history). Without it the stretch starts where the earlier prompt ended.
    """
    if copied is not None:
        return _match_copy(prompt, sampled, later=later, text_of=text_of, copied=copied)
    return _match_by_text(prompt, sampled, later=later, text_of=text_of)


def _match_copy(
    prompt: np.ndarray, sampled: np.ndarray, *, later: np.ndarray, text_of: TextOf, copied: CopiedTurn
) -> Match | None:
    is_same_place = (
        common_prefix(prompt, later) >= len(prompt) - MAX_PROMPT_TRIM
        and abs(copied.start - len(prompt)) <= MAX_PROMPT_TRIM
    )
    if not is_same_place or not len(sampled):
        return None
    text = text_of(later[copied.start : copied.end])
    if text and text == text_of(sampled):
        return Match(PrefixRelation.RETOKENIZED, matched=copied.end)
    # a template writes the stop token that the model sampled behind the copied text
    is_stopped = copied.end < len(later) and later[copied.end] == sampled[-1]
    if text and is_stopped and text == text_of(sampled[:-1]):
        return Match(PrefixRelation.RETOKENIZED, matched=copied.end + 1)
    return None


def _match_by_text(
    prompt: np.ndarray, sampled: np.ndarray, *, later: np.ndarray, text_of: TextOf
) -> Match | None:
    """Find e with text_of(later[len(prompt):e]) == text_of(sampled), by bisection on the text's length."""
    b, text = len(prompt), text_of(sampled)
    if not text or common_prefix(prompt, later) < b:
        return None
    low, high = b, len(later)
    while low < high:
        middle = (low + high) // 2
        if len(text_of(later[b:middle])) < len(text):
            low = middle + 1
        else:
            high = middle
    # a cut inside a character decodes to a placeholder of other length, so the bisection may stop a few
    # tokens early
    for end in range(low, min(low + 8, len(later)) + 1):
        if text_of(later[b:end]) == text:
            return Match(PrefixRelation.RETOKENIZED, matched=end)
    return None


def match_call(
    earlier: ModelCall, later: ModelCall, *, relation: PrefixRelation, text_of: TextOf | None
) -> Match | None:
    """How the later call continues the earlier one under one relation, or None. A prompt never continues
    itself, and without `text_of` the retokenized case never holds.
    """
    prompt, sampled, q = earlier.prompt_token_ids, earlier.completion_token_ids, later.prompt_token_ids
    if relation is PrefixRelation.STRICT:
        return match_strict(prompt, sampled, later=q)
    if np.array_equal(prompt, q):
        return None
    if relation is PrefixRelation.NORMALIZED:
        return match_normalized(prompt, sampled, later=q)
    if relation is PrefixRelation.RETOKENIZED and text_of is not None:
        copied = next((c for c in later.copied_turns if c.model_call_id == earlier.model_call_id), None)
        return match_retokenized(prompt, sampled, later=q, text_of=text_of, copied=copied)
    return None
