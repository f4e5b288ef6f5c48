"""A random nano policy in a directory, and `t1 serve` in front of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.demonstrations import demonstration_texts


def nano_policy(directory: Path) -> Path:
    """Random weights and a tokenizer of 512 ids: most of what it samples does not survive decoding and encoding."""
    from t1core.model.checkpoint import init_hf
    from t1core.model.shape import ModelShape

    texts = demonstration_texts(seed=0, count=100, wording=WORDINGS["compact"])
    vocab_size = train_tokenizer(texts, directory, vocab_size=512).vocab_size
    init_hf(ModelShape.nano(vocab_size=vocab_size), directory, seed=0)
    return directory


@contextlib.contextmanager
def serve(model: Path, *options: str):
    """The address at which the command answers; at the end it is told to stop, and does."""
    command = [sys.executable, "-m", "t1core.cli", "serve", str(model), "--port", "0", *options]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    try:
        yield served.stdout.readline().split(" answers at ")[1].split("/v1")[0]
    finally:
        served.send_signal(signal.SIGTERM)
        assert served.wait(timeout=120) == 130


def post(url: str, content: dict) -> dict:
    request = urllib.request.Request(url, data=json.dumps(content).encode())
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)
