"""How many tokens are scored at once: a block's logits lie in memory, a row's never do."""

LOGITS = 2**27
"""Of a block, on one rank. In bf16 the passes over one take about 18 bytes of each, 2.3 GiB."""


def tokens_at_once(vocab_shard: int) -> int:
    """Tokens of a block for `vocab_shard` words a rank."""
    return max(1, LOGITS // vocab_shard)
