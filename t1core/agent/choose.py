"""From settings to what a trial speaks: the wording and the form of an answer."""

from t1core.agent.prompt import WORDINGS, Wording
from t1core.agent.protocol import PROTOCOLS, Protocol
from t1core.agent.terminus2 import terminus2_protocol, terminus2_wording


def wording_of(prompt: str, *, protocol: str) -> Wording:
    """The wording named by agent.prompt in the form agent.protocol. ValueError where it needs what is not installed."""
    if prompt == "terminus2":
        return terminus2_wording(protocol)
    return WORDINGS["full_xml" if (prompt, protocol) == ("full", "xml") else prompt]


def protocol_of(prompt: str, *, protocol: str) -> Protocol:
    """The form of an answer: ours, or Harbor's own reading of it where its words are used too."""
    return terminus2_protocol(protocol) if prompt == "terminus2" else PROTOCOLS[protocol]
