"""Grafana panels: JSON models and their layout on the grid."""

WIDTH = 24
SECONDS, SHARE, PER_SECOND, BYTES, COUNT = "s", "percentunit", "reqps", "bytes", "short"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Display options of a graph.
STEPS = {"lineInterpolation": "stepAfter"}
LOGARITHMIC = {"scaleDistribution": {"type": "log", "log": 10}}


class Board:
    """Panels from left to right, then down."""

    def __init__(self):
        self.panels, self.x, self.y, self.height = [], 0, 0, 0

    def grid_position(self, width, height):
        if self.x + width > WIDTH:
            self.next_line()
        position = {"x": self.x, "y": self.y, "w": width, "h": height}
        self.x, self.height = self.x + width, height
        return position

    def next_line(self):
        self.x, self.y, self.height = 0, self.y + self.height, 0

    def row(self, title):
        self.next_line()
        self.panels.append(
            {
                "id": len(self.panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": self.grid_position(WIDTH, 1),
            }
        )
        self.next_line()

    def panel(
        self, kind, title, unit, queries, description, width, height, field=None, options=None
    ):
        instant = kind == "stat"
        targets = [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query,
                "legendFormat": legend or "__auto",
                "instant": instant,
                "range": not instant,
            }
            for number, (query, legend) in enumerate(queries)
        ]
        defaults = {"unit": unit, **(field or {})}
        self.panels.append(
            {
                "id": len(self.panels) + 1,
                "type": kind,
                "title": title,
                "description": description,
                "datasource": DATASOURCE,
                "gridPos": self.grid_position(width, height),
                "fieldConfig": {"defaults": defaults, "overrides": []},
                "options": options or {},
                "targets": targets,
            }
        )

    def stat(self, title, unit, query, description, bad_below=None, bad_above=None):
        steps = [{"color": "green", "value": None}]
        if bad_below is not None:
            steps = [{"color": "red", "value": None}, {"color": "green", "value": bad_below}]
        if bad_above is not None:
            steps.append({"color": "red", "value": bad_above})
        options = {
            "colorMode": "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
        self.panel(
            "stat",
            title,
            unit,
            [(query, "")],
            description,
            4,
            4,
            {"thresholds": {"mode": "absolute", "steps": steps}},
            options,
        )

    def graph(self, title, unit, queries, description, **field):
        custom = {
            "lineWidth": 1,
            "fillOpacity": 0,
            "showPoints": "never",
            **field.pop("custom", {}),
        }
        options = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        self.panel(
            "timeseries",
            title,
            unit,
            queries,
            description,
            8,
            8,
            {"custom": custom, **field},
            options,
        )

    def heatmap(self, title, query, description):
        options = {
            "calculate": False,
            "yAxis": {"unit": SECONDS},
            "color": {"mode": "scheme", "scheme": "Oranges"},
            "cellGap": 1,
        }
        self.panel("heatmap", title, COUNT, [(query, "{{le}}")], description, 8, 8, options=options)
        self.panels[-1]["targets"][0]["format"] = "heatmap"
