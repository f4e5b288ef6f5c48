"""A terminal's text with its colours as HTML: what sets colours becomes spans, everything else is escaped and spelled
out as `visible` does.

Only SGR sequences (ESC [ numbers m) are obeyed, and only their colours, bold, dim, underline and reverse; numbers are
the one thing taken from the text into an attribute.
"""

import re
from dataclasses import dataclass, replace

from t1core.view.escape import visible

_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
_NAMED = (
    "#1a1a1a", "#c01c28", "#26752f", "#8a6100", "#1f5fbf", "#8f3fa0", "#0f7b83", "#d0d0d0",
    "#6a6a6a", "#e0434f", "#3a9a45", "#b58900", "#4a86e8", "#b565c8", "#2aa6b0", "#ffffff",
)  # fmt: skip


@dataclass(frozen=True)
class _Look:
    front: str = ""
    back: str = ""
    bold: bool = False
    dim: bool = False
    underline: bool = False
    reverse: bool = False

    def style(self) -> str:
        front, back = self.front, self.back
        if self.reverse:
            front, back = back or "#ffffff", front or "#1a1a1a"
        parts = {
            "color": front,
            "background": back,
            "font-weight": "bold" if self.bold else "",
            "opacity": ".6" if self.dim else "",
            "text-decoration": "underline" if self.underline else "",
        }
        return ";".join(f"{name}:{value}" for name, value in parts.items() if value)


def ansi_html(text: str) -> str:
    """The text as HTML, coloured where it says so."""
    look, parts, at = _Look(), [], 0
    for match in _SGR.finditer(text):
        parts.append(_span(text[at : match.start()], look))
        look, at = _next(look, match[1]), match.end()
    parts.append(_span(text[at:], look))
    return "".join(parts)


def _span(text: str, look: _Look) -> str:
    style = look.style()
    return f'<span style="{style}">{visible(text)}</span>' if style and text else visible(text)


def _next(look: _Look, sequence: str) -> _Look:
    numbers = [int(word[:4] or 0) for word in sequence.replace(":", ";").split(";")]
    while numbers:
        number = numbers.pop(0)
        if number == 0:
            look = _Look()
        elif number in (1, 2, 4, 7):
            look = replace(look, **{{1: "bold", 2: "dim", 4: "underline", 7: "reverse"}[number]: True})
        elif number == 22:
            look = replace(look, bold=False, dim=False)
        elif number in (24, 27):
            look = replace(look, **{{24: "underline", 27: "reverse"}[number]: False})
        elif number in (38, 48):
            look = replace(look, **{"front" if number == 38 else "back": _extended(numbers)})
        elif number in (39, 49):
            look = replace(look, **{"front" if number == 39 else "back": ""})
        elif 30 <= number <= 37 or 90 <= number <= 97:
            look = replace(look, front=_NAMED[number - 30 if number < 40 else number - 82])
        elif 40 <= number <= 47 or 100 <= number <= 107:
            look = replace(look, back=_NAMED[number - 40 if number < 50 else number - 92])
    return look


def _extended(numbers: list[int]) -> str:
    """The colour of 38;5;n or 38;2;r;g;b, whose numbers are taken off the list; "" where they are no colour."""
    kind = numbers.pop(0) if numbers else 0
    size = {5: 1, 2: 3}.get(kind, 0)
    given, numbers[:size] = numbers[:size], []
    if not size or len(given) < size or max(given) > 255:
        return ""
    if kind == 2:
        return "#{:02x}{:02x}{:02x}".format(*given)
    (place,) = given
    if place < 16:
        return _NAMED[place]
    if place >= 232:
        return "#{0:02x}{0:02x}{0:02x}".format(8 + 10 * (place - 232))
    levels = (0, 95, 135, 175, 215, 255)
    place -= 16
    return f"#{levels[place // 36]:02x}{levels[place // 6 % 6]:02x}{levels[place % 6]:02x}"
