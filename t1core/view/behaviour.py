"""Why trials end, and after how many turns."""

import pandas as pd

from t1core.view.style import BLUE, MEASURED, SERIES, Picture, finding, nothing_to_show, picture, styled

_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")


@styled
def figure_stop_reasons(reasons: pd.DataFrame, *, turns: pd.DataFrame) -> Picture:
    """Share of launched trials by stop reason (above) and turns of accepted trials (below), by step.

    `reasons` and `turns` are analysis.stop_reasons and analysis.turns_by_step of the same trials.
    """
    figure, (above, below) = picture(height=4.4, rows=2)
    names = [name for name in reasons.columns if name != "step"]
    if not names:
        nothing_to_show(above, "no trial has ended yet")
        nothing_to_show(below, "")
        return figure
    bottom = pd.Series(0.0, index=reasons.index)
    for index, name in enumerate(names):
        above.bar(
            reasons["step"], reasons[name], bottom=bottom, width=1.0, color=SERIES[index % len(SERIES)],
            hatch=_HATCHES[index % len(_HATCHES)], edgecolor="white", linewidth=0.3, label=name.replace("_", " "),
        )  # fmt: skip
        bottom += reasons[name]
    above.set_ylim(0, 1)
    above.set_ylabel("share of launched trials")
    above.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="measured")
    below.plot(turns["step"], turns["turns"], color=BLUE, label="measured", **MEASURED)
    below.set_ylim(bottom=0)
    below.set_ylabel("turns a trial")
    below.set_xlabel("step")
    finding(figure, _title(reasons, names))
    return figure


def _title(reasons: pd.DataFrame, names: list[str]) -> str:
    size = max(1, len(reasons) // 4)
    first, last = reasons[names].iloc[:size].mean(), reasons[names].iloc[-size:].mean()
    top = last.idxmax()
    return (
        f"In the last quarter of steps {last[top]:.0%} of trials end as {top.replace('_', ' ')}, "
        f"{first[top]:.0%} in the first"
    )
