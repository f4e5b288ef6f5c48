"""The forms an answer may have: Terminus-2's JSON and XML.

Both give analysis, plan, commands of keystrokes and a duration, and a claim of completion that counts when it is made
twice in a row. An answer that cannot be used costs a turn and is answered with what was wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass

from t1core.agent.json_answer import parse_json_answer
from t1core.agent.response import Response
from t1core.agent.xml_answer import parse_xml_answer


@dataclass(frozen=True)
class Protocol:
    """One form: `parse` never raises, what is wrong stands in the response's errors."""

    name: str
    parse: Callable[[str], Response]


PROTOCOLS = {
    item.name: item for item in (Protocol("json", parse_json_answer), Protocol("xml", parse_xml_answer))
}
