"""Text that a trial wrote, made safe and visible: HTML is escaped, control and direction characters are
spelled out.
"""

import html
import re

# C0 and C1 controls other than newline and tab, and the characters that reorder or hide text.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def visible(value: object) -> str:
    """The value as HTML text; hidden characters become symbols (ESC is U+241B) or their code point in
    brackets.
    """
    return html.escape(_HIDDEN.sub(_spell, str(value)), quote=True)


def _spell(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return f"\u27e8U+{code:04X}\u27e9"
