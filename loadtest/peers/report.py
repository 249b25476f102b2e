"""Report: the table in docs/explanation/performance.md, and the chart peers.svg."""

import dataclasses
import html
import pathlib
import statistics

GROUPS = {"floor": "The floor", "rtad": "rtad", "instead": "Alternatives"}


@dataclasses.dataclass(frozen=True)
class Row:
    """Table row: group, short key, name, key of the bare route to compare with, ids per request."""

    group: str
    key: str
    name: str
    floor: str | None = None
    ids: int = 1


@dataclasses.dataclass(frozen=True)
class Figure:
    """CPU time in microseconds per request, of the server and of its Redis; requests per second."""

    user: float
    system: float
    redis_user: float
    redis_system: float
    rate: float

    @property
    def total(self) -> float:
        return self.user + self.system + self.redis_user + self.redis_system

    def __str__(self) -> str:
        return f"{self.total:.2f} us, {self.rate:,.0f}/s"


# Figures of all rounds, by row.
Figures = dict[Row, list[Figure]]


def median_round(figures: list[Figure]) -> Figure:
    """The round of median CPU time, with its own rate: together they give the load of the core."""
    return sorted(figures, key=lambda figure: figure.total)[(len(figures) - 1) // 2]


def ratios(figures: list[Figure], floor: list[Figure]) -> list[float]:
    """Ratios per round: a temporary slowdown of the machine affects both."""
    return [figure.total / below.total for figure, below in zip(figures, floor, strict=True)]


def table(figures_of: Figures, about: str) -> str:
    lines = [
        f"{about[0].upper()}{about[1:]}",
        "",
        "| one core | CPU µs/request | user + system | of it Redis | requests/s | core busy | to bare axum |",
        "|---|---|---|---|---|---|---|",
    ]
    keys = {row.key: figures for row, figures in figures_of.items()}
    for group, title in GROUPS.items():
        lines.append(f"| **{title}** | | | | | | |")
        for row, figures in figures_of.items():
            if row.group == group:
                lines.append(line(row, figures, keys))
    return "\n".join([*lines, "", *bounds(keys)])


def line(row: Row, figures: list[Figure], keys: dict[str, list[Figure]]) -> str:
    figure = median_round(figures)
    each = f" ({figure.total / row.ids:.3f} an id)" if row.ids > 1 else ""
    redis = figure.redis_user + figure.redis_system
    cells = [
        row.name,
        f"{figure.total:.2f}{each}",
        f"{figure.user + figure.redis_user:.2f} + {figure.system + figure.redis_system:.2f}",
        f"{redis:.2f}" if redis else "",
        f"{figure.rate:,.0f}",
        f"{figure.total * figure.rate / 1e4:.0f} %",
        f"{statistics.median(ratios(figures, keys[row.floor])):.2f}" if row.floor else "",
    ]
    return f"| {' | '.join(cells)} |"


# Comparisons, with the maximum ratio of CPU times.
BOUNDS = [
    ("`GET /v1/check` to bare axum with one path", "get", "bare-one-path", 1.10),
    ("`GET /v1/check` to bare axum with the same route", "get", "bare-get", 1.10),
    ("`GET /v1/check` to nginx", "get", "nginx", 1.00),
    ("Tencent to bare axum that reads the same body", "tencent", "bare-tencent", 1.25),
]


def bounds(keys: dict[str, list[Figure]]) -> list[str]:
    lines = ["| bound | at most | measured | of single rounds | |", "|---|---|---|---|---|"]
    for name, key, floor, most in BOUNDS:
        found = ratios(keys[key], keys[floor])
        measured = statistics.median(found)
        verdict = "holds" if round(measured, 2) <= most else "does not hold"
        lines.append(
            f"| {name} | {most:.2f} | {measured:.2f} | {min(found):.2f} to {max(found):.2f} | {verdict} |"
        )
    return lines


def replace(file: pathlib.Path, text: str, name: str) -> None:
    """Replaces the text between the markers of the file."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = file.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{file} has no {begin} with {end} after it")
    file.write_text(f"{before}{begin}\n{text}\n{end}{after}")


# Own background: the page may be light or dark, independent of the system setting.
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .small { font-size: 11px; fill: #59636e }
.back { fill: #ffffff } .line { stroke: #d1d9e0 }
.user { fill: #0969da } .system { fill: #80b3f0 } .redis-user { fill: #bc4c00 } .redis-system { fill: #f0a875 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 }
.back { fill: #0d1117 } .line { stroke: #3d444d }
.user { fill: #58a6ff } .system { fill: #1f4f8f } .redis-user { fill: #f0883e } .redis-system { fill: #8a4513 }
}
"""
PARTS = {
    "user": "user",
    "system": "system",
    "redis_user": "Redis, user",
    "redis_system": "Redis, system",
}
WIDTH, LEFT, RIGHT, BAR, STEP = 920, 330, 60, 16, 24


def chart(figures_of: Figures, about: str) -> str:
    """The SVG chart, without batches, whose bars would dwarf the others."""
    shown = {row: median_round(figures) for row, figures in figures_of.items() if row.ids == 1}
    scale = (WIDTH - LEFT - RIGHT) / max(figure.total for figure in shown.values())
    shapes, y = [], 46

    def text(x: float, y: int, words: str, more: str = "") -> None:
        shapes.append(f'<text x="{x:.1f}" y="{y}" {more}>{html.escape(words)}</text>')

    text(16, 26, "CPU time per request, µs", 'class="title"')
    x = LEFT
    for part, name in PARTS.items():
        shapes.append(
            f'<rect class="{part.replace("_", "-")}" x="{x}" y="16" width="12" height="12"/>'
        )
        text(x + 18, 27, name, 'class="small"')
        x += 100
    for group, title in GROUPS.items():
        y += 12
        text(16, y + 13, title, 'class="title"')
        y += STEP
        for row, figure in shown.items():
            if row.group != group:
                continue
            text(LEFT - 10, y + 13, row.name.replace("`", ""), 'text-anchor="end"')
            x = float(LEFT)
            for part in PARTS:
                width = getattr(figure, part) * scale
                if width:
                    at = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}"'
                    shapes.append(f'<rect class="{part.replace("_", "-")}" {at}/>')
                x += width
            text(x + 8, y + 13, f"{figure.total:.1f}")
            y += STEP
    shapes.append(f'<line class="line" x1="{LEFT}" y1="44" x2="{LEFT}" y2="{y}"/>')
    words = about.split("; ")
    text(16, y + 24, "; ".join(words[:1]), 'class="small"')
    text(16, y + 40, "; ".join(words[1:]), 'class="small"')
    height = y + 54
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
    title = "<title>CPU time per request of rtad and its peers</title>"
    back = '<rect class="back" width="100%" height="100%"/>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", back, *shapes, "</svg>", ""])
