"""Units of the console: functions evaluated in the page, for cases that need hours, many platforms
or a slow network."""

import pytest

from suites.console import rust_words
from suites.console.browsing import Console


class TestParts(Console):
    def in_page(self, code, value=None):
        """Evaluates a function in the page, which is otherwise idle."""
        self.page.click("#pause")
        self.page.wait_for_load_state("networkidle")
        return self.page.evaluate(code, value)

    def test_rates_follow_the_counters(self):
        result = self.in_page(
            """async () => {
                const { Reading, Span, shareAbove } = await import("/console/metrics.js");
                const text = (a, b, c, d, e) => `# HELP x y\\nx_total{r="a\\\\"b",c="1"} ${a}\\nx_total{r="z",c="2"} ${b}\\n` +
                    `h_bucket{r="a",le="0.00001"} ${c}\\nh_bucket{r="a",le="0.001"} ${d}\\nh_bucket{r="a",le="+Inf"} ${e}\\ng NaN\\n`;
                const span = new Span(new Reading(text(10, 0, 0, 0, 1), 1000), new Reading(text(20, 30, 50, 98, 101), 6000));
                const buckets = span.buckets("h", { r: "a" });
                const none = span.buckets("h", { r: "b" });
                return { all: span.rate("x_total"), one: span.rate("x_total", { r: 'a"b' }), unknown: span.rate("y"),
                    values: span.now.values("x_total", "r"), counts: buckets.map(({ count }) => count),
                    quarter: span.quantile(0.25, buckets), tail: String(span.quantile(0.999, buckets)),
                    above: shareAbove(0.001, buckets), within: shareAbove(0.00001, buckets),
                    none: [span.quantile(0.5, none), shareAbove(0.001, none)].every((one) => one === undefined),
                    nan: Number.isNaN(span.now.sum("g")) };
            }"""
        )
        assert (result["all"], result["one"], result["unknown"]) == (8, 2, 0)
        assert (result["values"], result["counts"]) == (['a"b', "z"], [50, 48, 2])
        assert result["quarter"] == pytest.approx(0.00001 / 2)
        assert (result["tail"], result["above"], result["within"]) == ("Infinity", 0.02, 0.5)
        assert result["none"] and result["nan"]

    def test_items_with_equal_keys_are_all_shown(self):
        result = self.in_page(
            """async () => {
                const { el, keyed, setText } = await import("/console/dom.js");
                const parent = el("ul");
                const show = (...items) => {
                    keyed(parent, items, ([key]) => key, () => el("li"), (element, [, text]) => setText(element, text));
                    return [...parent.children].map(({ textContent }) => textContent).join();
                };
                return [show(["a", 1], ["b", 2]), show(["a", 1], ["a", 2], ["b", 3], ["a", 4]), show(["b", 5], ["a", 6], ["a", 7]), show(["a", 8])];
            }"""
        )
        assert result == ["1,2", "1,2,3,4", "5,6,7", "8"]

    def test_route_keeps_its_color_and_figure_among_many(self):
        result = self.in_page(
            """async (names) => {
                const { noteTraffic, showTraffic } = await import("/console/traffic.js");
                const { Reading, Span } = await import("/console/metrics.js");
                const count = (name, number) => `rtad_request_duration_seconds_count{route="${name}"} ${number}\\n`;
                const legend = (isUsed, times) => {
                    const at = performance.now() + 1000 * times;
                    const text = (n) => names.map((name, index) => count(name, isUsed(index) ? (index + 1) * n : 0)).join("");
                    const span = new Span(new Reading(text(100 * times), at), new Reading(text(100 * times + times), at + 1000));
                    noteTraffic(span);
                    showTraffic(span);
                    const entries = [...document.querySelectorAll("#panels .legend")[0].children];
                    return Object.fromEntries(entries.map((one) => [one.children[1].textContent, [one.children[0].className, one.children[2].textContent]]));
                };
                return [legend((index) => index % 2 === 1, 1), legend(() => true, 2), legend(() => true, 3)];
            }""",
            [f"seventh-{index}" for index in range(1, 10)],
        )
        assert [len(legend) for legend in result] == [4, 9, 9]
        for index in range(1, 10):
            name = f"seventh-{index}"
            entries = [legend[name] for legend in result if name in legend]
            assert len({color for color, _ in entries}) == 1, entries
            assert [float(figure) for _, figure in entries[-2:]] == [2 * index, 3 * index]

    def test_charts_have_gaps_for_unobserved_time(self):
        result = self.in_page(
            """async () => {
                const { Chart } = await import("/console/charts.js");
                const chart = new Chart(0.1);
                const positions = [0, 0.05, 0.1, 0.6, 0.65, 1];
                const scale = { least: 1, most: 10, rules: [], limit: 5, write: String };
                const drawn = (what) => [...chart.drawing.querySelectorAll(what)];
                chart.areas(positions, [[1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]], ["bid", "no-bid"], String);
                const areas = drawn("polygon").map((one) => `${one.getAttribute("class")} ${one.points.length}`);
                chart.lines(positions, [[1, 2, 3, 4, 5, 6], [1, undefined, 3, 4, 5, undefined]], ["q0", "q1"], scale);
                return { areas, lines: drawn(".q0, .q1").map((one) => one.getAttribute("d").replace(/[^ML]/g, "")) };
            }"""
        )
        assert result["areas"] == [
            f"{name} {points}" for name in ("bid", "no-bid") for points in (6, 4, 2)
        ]
        assert result["lines"] == ["MLLMLM", "MMML"]

    def test_map_shows_the_latest_request(self):
        result = self.in_page(
            """async () => {
                const { ShardMap } = await import("/console/map.js");
                const map = new ShardMap("old_users");
                const answers = [];
                const fetchLater = () => new Promise((come, fail) => answers.push({ come, fail }));
                const shards = (keys) => ({ arrayBuffer: async () => new Uint32Array(65536).fill(keys).buffer });
                const updates = ["one", "two", "two", "three"].map((version) => map.update(version, fetchLater));
                answers[2].come(shards(3));
                answers[0].come(shards(1));
                answers[1].fail(new Error("of no account"));
                await Promise.all(updates);
                return [answers.length, map.keys[0], map.shown, map.readout.textContent];
            }"""
        )
        assert result == [3, 3, "three", "Keys per shard"]

    def test_map_is_refetched_during_a_rolling_swap(self):
        result = self.in_page(
            """async () => {
                const { showAudiences } = await import("/console/audiences.js");
                const { Reading } = await import("/console/metrics.js");
                const status = await (await fetch("/v1/status")).json();
                const paths = [];
                const fetchPath = async (path) => (paths.push(path), { arrayBuffer: async () => new ArrayBuffer(4 * 65536) });
                return [[0, 0], [1, 0], [1, 2000], [1, 12000], [0, 14000], [0, 30000]].map(([mixed, at]) => {
                    showAudiences(status, new Reading(`rtad_snapshot_mixed{audience="old_users"} ${mixed}`, at), fetchPath);
                    return paths.length;
                });
            }"""
        )
        assert result == [0, 1, 1, 2, 3, 3]

    def test_failure_starts_with_the_first_after_success(self):
        result = self.in_page(
            """async () => {
                const { problemsOf } = await import("/console/audiences.js");
                const { Reading } = await import("/console/metrics.js");
                const { moment } = await import("/console/words.js");
                const poll = (since_unix_seconds, result) => ({ since_unix_seconds, at_unix_seconds: since_unix_seconds, result, count: 1, seconds: 1 });
                const since = (...syncs) => {
                    const audience = { name: "a", required: true, available: true, syncs, snapshot: { generation: 7, deltas: { state: "live" } } };
                    return problemsOf({ ready: true, audiences: [audience] }, new Reading("", 0)).map(({ text }) => text);
                };
                const [first, good, failed, other, last] = [1000, 2000, 3000, 4000, 5000].map((at) => 1e9 + at);
                const run = [poll(last, "store"), poll(other, "digest"), poll(failed, "store")];
                return { whole: since(...run), broken: since(...run, poll(good, "unchanged"), poll(first, "store")), well: since(poll(good, "ok"), ...run),
                    failed: moment(failed) };
            }"""
        )
        for case in ("whole", "broken"):
            assert len(result[case]) == 1
            assert f"Since {result['failed']}." in result[case][0], case
        assert result["well"] == []

    def test_reason_for_not_ready_is_shown(self):
        result = self.in_page(
            """async () => {
                const { problemsOf } = await import("/console/audiences.js");
                const { Reading } = await import("/console/metrics.js");
                const audience = { name: "a", required: true, available: true, syncs: [] };
                const snapshot = { generation: 7, deltas: { state: "live" } };
                const reason = (audience) => problemsOf({ ready: false, audiences: [audience] }, new Reading("", 0))[0].text;
                return [reason(audience), reason({ ...audience, snapshot })];
            }"""
        )
        assert result[0] == "Required audiences have no verified snapshot yet: a."
        assert "the decision port is not open yet" in result[1]


class TestWords(Console):
    def test_both_languages_have_all_texts(self):
        self.check_texts(rust_words.KEYS, ("md5", "deltas-sum", "encoding-"))

    def test_every_kind_and_reason_has_a_text(self):
        options = self.page.locator("#what optgroup").first.locator("option")
        assert [one.get_attribute("value") for one in options.all()] == ["any", *rust_words.KINDS]
        heads = self.page.locator("#tables table").nth(1).locator("th[scope=col]")
        assert heads.count() == len(["strategy", "per second", "bids", *rust_words.REASONS])
