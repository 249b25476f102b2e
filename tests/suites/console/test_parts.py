"""Functions of the console, evaluated in the page."""

import pytest

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
        composed = "access because capped do encoding failure grant id none per reason route span sync why"
        prefixes = tuple(f"{word}-" for word in composed.split())
        self.check_texts(prefixes, ("md5", "deltas-sum", "encoding-"))
