"""Foreign harnesses: OpenAI-compatible chat in front of an engine, with token ids as the truth of a session."""

from t1core.rollout.chat.server import ChatServer, SessionSettings, serving
from t1core.rollout.chat.template import ChatFormat

__all__ = ["ChatFormat", "ChatServer", "SessionSettings", "serving"]
