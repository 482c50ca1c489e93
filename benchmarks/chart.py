"""The chart of the docs: what a command in a sandbox of its own costs, beside the others."""

from __future__ import annotations

from pathlib import Path

from lines import Line


def draw(lines: dict[str, Line], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [lines[name] for name in ("run", "exec", "cli") if name in lines]
    figure, axes = pyplot.subplots(1, len(shown), figsize=(4.2 * len(shown), 3.2), squeeze=False)
    for axis, line in zip(axes[0], shown, strict=True):
        names = list(line.values)[::-1]
        values = [line.values[name] for name in names]
        own = ("in process", "over the socket", "agentkernel run")
        colours = ["#2b6cb0" if name in own else "#a0aec0" for name in names]
        bars = axis.barh(names, values, color=colours)
        axis.set_xscale("log")
        axis.set_xlim(right=max(values) * 4)
        axis.bar_label(bars, [f" {value:.1f} ms" for value in values], fontsize=8)
        axis.set_title(line.title, fontsize=9)
        axis.tick_params(labelsize=8)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=144, metadata={"Software": None})
    pyplot.close(figure)
