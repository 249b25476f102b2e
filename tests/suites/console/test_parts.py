"""The page's parts, each asked by itself in the page: what would take an hour, a seventh platform
or a slow network to see otherwise."""

import pytest

from suites.console import rust_words
from suites.console.browsing import Console


class TestParts(Console):
    def in_page(self, code, value=None):
        """What a function gives in the page, while the page itself does nothing."""
        self.page.click("#pause")
        self.page.wait_for_load_state("networkidle")
        return self.page.evaluate(code, value)

    def test_rates_are_those_of_the_counters(self):
        told = self.in_page(
            """async () => {
                const { Reading, Span, shareAbove } = await import("/console/metrics.js");
                const text = (a, b, c, d, e) => `# HELP x y\\nx_total{r="a\\\\"b",c="1"} ${a}\\nx_total{r="z",c="2"} ${b}\\n` +
                    `h_bucket{r="a",le="0.00001"} ${c}\\nh_bucket{r="a",le="0.001"} ${d}\\nh_bucket{r="a",le="+Inf"} ${e}\\ng NaN\\n`;
                const span = new Span(new Reading(text(10, 0, 0, 0, 1), 1000), new Reading(text(20, 30, 50, 98, 101), 6000));
                const buckets = span.buckets("h", { r: "a" });
                const none = span.buckets("h", { r: "b" });
                return { all: span.rate("x_total"), one: span.rate("x_total", { r: 'a"b' }), nobody: span.rate("y"),
                    values: span.now.values("x_total", "r"), counts: buckets.map(({ count }) => count),
                    quarter: span.quantile(0.25, buckets), tail: String(span.quantile(0.999, buckets)),
                    above: shareAbove(0.001, buckets), within: shareAbove(0.00001, buckets),
                    none: [span.quantile(0.5, none), shareAbove(0.001, none)].every((one) => one === undefined),
                    nan: Number.isNaN(span.now.sum("g")) };
            }"""
        )
        assert (told["all"], told["one"], told["nobody"]) == (8, 2, 0)
        assert (told["values"], told["counts"]) == (['a"b', "z"], [50, 48, 2])
        assert told["quarter"] == pytest.approx(0.00001 / 2)
        assert (told["tail"], told["above"], told["within"]) == ("Infinity", 0.02, 0.5)
        assert told["none"] and told["nan"]

    def test_of_two_that_are_called_the_same_each_is_shown(self):
        told = self.in_page(
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
        assert told == ["1,2", "1,2,3,4", "5,6,7", "8"]

    def test_a_route_keeps_its_colour_and_its_figure_however_many_there_are(self):
        told = self.in_page(
            """async (names) => {
                const { noteTraffic, showTraffic } = await import("/console/traffic.js");
                const { Reading, Span } = await import("/console/metrics.js");
                const count = (name, number) => `rtad_request_duration_seconds_count{route="${name}"} ${number}\\n`;
                const legend = (asked, times) => {
                    const at = performance.now() + 1000 * times;
                    const text = (n) => names.map((name, place) => count(name, asked(place) ? (place + 1) * n : 0)).join("");
                    const span = new Span(new Reading(text(100 * times), at), new Reading(text(100 * times + times), at + 1000));
                    noteTraffic(span);
                    showTraffic(span);
                    const entries = [...document.querySelectorAll("#panels .legend")[0].children];
                    return Object.fromEntries(entries.map((one) => [one.children[1].textContent, [one.children[0].className, one.children[2].textContent]]));
                };
                return [legend((place) => place % 2 === 1, 1), legend(() => true, 2), legend(() => true, 3)];
            }""",
            [f"seventh-{place}" for place in range(1, 10)],
        )
        assert [len(legend) for legend in told] == [4, 9, 9]
        for place in range(1, 10):
            name = f"seventh-{place}"
            entries = [legend[name] for legend in told if name in legend]
            assert len({colour for colour, _ in entries}) == 1, entries
            assert [float(figure) for _, figure in entries[-2:]] == [2 * place, 3 * place]

    def test_nothing_is_drawn_of_a_time_that_nobody_saw(self):
        told = self.in_page(
            """async () => {
                const { Chart } = await import("/console/charts.js");
                const chart = new Chart(0.1);
                const places = [0, 0.05, 0.1, 0.6, 0.65, 1];
                const scale = { least: 1, most: 10, rules: [], limit: 5, write: String };
                const drawn = (what) => [...chart.drawing.querySelectorAll(what)];
                chart.areas(places, [[1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]], ["bid", "no-bid"], String);
                const areas = drawn("polygon").map((one) => `${one.getAttribute("class")} ${one.points.length}`);
                chart.lines(places, [[1, 2, 3, 4, 5, 6], [1, undefined, 3, 4, 5, undefined]], ["q0", "q1"], scale);
                return { areas, lines: drawn(".q0, .q1").map((one) => one.getAttribute("d").replace(/[^ML]/g, "")) };
            }"""
        )
        assert told["areas"] == [
            f"{name} {points}" for name in ("bid", "no-bid") for points in (6, 4, 2)
        ]
        assert told["lines"] == ["MLLMLM", "MMML"]

    def test_the_map_is_the_one_that_was_asked_for_last(self):
        told = self.in_page(
            """async () => {
                const { ShardMap } = await import("/console/map.js");
                const map = new ShardMap("old_users");
                const answers = [];
                const asked = () => new Promise((come, fail) => answers.push({ come, fail }));
                const shards = (keys) => ({ arrayBuffer: async () => new Uint32Array(65536).fill(keys).buffer });
                const updates = ["one", "two", "two", "three"].map((version) => map.update(version, asked));
                answers[2].come(shards(3));
                answers[0].come(shards(1));
                answers[1].fail(new Error("of no account"));
                await Promise.all(updates);
                return [answers.length, map.keys[0], map.shown, map.readout.textContent];
            }"""
        )
        assert told == [3, 3, "three", "Keys of each shard"]

    def test_the_map_of_a_generation_that_rolls_in_is_read_again(self):
        told = self.in_page(
            """async () => {
                const { showAudiences } = await import("/console/audiences.js");
                const { Reading } = await import("/console/metrics.js");
                const status = await (await fetch("/v1/status")).json();
                const asked = [];
                const ask = async (path) => (asked.push(path), { arrayBuffer: async () => new ArrayBuffer(4 * 65536) });
                return [[0, 0], [1, 0], [1, 2000], [1, 12000], [0, 14000], [0, 30000]].map(([mixed, at]) => {
                    showAudiences(status, new Reading(`rtad_snapshot_mixed{audience="old_users"} ${mixed}`, at), ask);
                    return asked.length;
                });
            }"""
        )
        assert told == [0, 1, 1, 2, 3, 3]

    def test_a_failure_is_as_old_as_the_first_since_all_was_well(self):
        told = self.in_page(
            """async () => {
                const { problemsOf } = await import("/console/audiences.js");
                const { Reading } = await import("/console/metrics.js");
                const { moment } = await import("/console/words.js");
                const look = (since_unix_seconds, result) => ({ since_unix_seconds, at_unix_seconds: since_unix_seconds, result, count: 1, seconds: 1 });
                const since = (...syncs) => {
                    const audience = { name: "a", required: true, available: true, syncs, snapshot: { generation: 7, deltas: { state: "live" } } };
                    return problemsOf({ ready: true, audiences: [audience] }, new Reading("", 0)).map(({ text }) => text);
                };
                const [first, good, failed, other, last] = [1000, 2000, 3000, 4000, 5000].map((at) => 1e9 + at);
                const run = [look(last, "store"), look(other, "digest"), look(failed, "store")];
                return { whole: since(...run), broken: since(...run, look(good, "unchanged"), look(first, "store")), well: since(look(good, "ok"), ...run),
                    failed: moment(failed) };
            }"""
        )
        for case in ("whole", "broken"):
            assert len(told[case]) == 1
            assert f"Since {told['failed']}." in told[case][0], case
        assert told["well"] == []

    def test_whatever_keeps_a_pod_from_being_ready_is_said(self):
        told = self.in_page(
            """async () => {
                const { problemsOf } = await import("/console/audiences.js");
                const { Reading } = await import("/console/metrics.js");
                const audience = { name: "a", required: true, available: true, syncs: [] };
                const snapshot = { generation: 7, deltas: { state: "live" } };
                const why = (audience) => problemsOf({ ready: false, audiences: [audience] }, new Reading("", 0))[0].text;
                return [why(audience), why({ ...audience, snapshot })];
            }"""
        )
        assert told[0] == "Required audiences have no verified snapshot yet: a."
        assert "the decision port is not open yet" in told[1]


class TestWords(Console):
    def test_both_languages_say_the_same_and_all_that_the_pod_may_answer(self):
        told = self.page.evaluate(
            """async (fromRust) => {
                const { LANGUAGES } = await import("/console/words.js");
                const { en, zh } = LANGUAGES;
                const holes = (text) => [...text.matchAll(/\\{(\\w+)\\}/g)].map((one) => one[1]).sort().join();
                const parts = performance.getEntriesByType("resource").map(({ name }) => name).filter((name) => /(?<!en|zh)\\.js$/.test(name));
                const code = (await Promise.all(parts.map((url) => fetch(url).then((answer) => answer.text())))).join("\\n");
                const used = [...code.matchAll(/\\bt\\("([^"]+)"/g)].map((one) => one[1]);
                const marked = [...document.querySelectorAll("[data-t], [data-t-label]")].map((one) => one.dataset.t ?? one.dataset.tLabel);
                const wanted = [...used, ...marked, ...fromRust];
                return { keys: Object.keys(en).join() === Object.keys(zh).join(), count: used.length,
                    holes: Object.keys(en).filter((key) => holes(en[key]) !== holes(zh[key] ?? "")), missing: wanted.filter((key) => !(key in en)),
                    idle: Object.keys(en).filter((key) => !wanted.includes(key) && !code.includes(`"${key}"`)),
                    same: Object.keys(en).filter((key) => en[key] === zh[key] && !["md5", "deltas-sum"].includes(key) && !key.startsWith("encoding-")) };
            }""",
            rust_words.KEYS,
        )
        assert told.pop("count") > 100
        assert told == {"keys": True, "holes": [], "missing": [], "idle": [], "same": []}

    def test_every_kind_of_id_and_every_reason_is_there(self):
        options = self.page.locator("#what optgroup").first.locator("option")
        assert [one.get_attribute("value") for one in options.all()] == ["any", *rust_words.KINDS]
        heads = self.page.locator("#tables table").nth(1).locator("th[scope=col]")
        assert heads.count() == len(["strategy", "per second", "bids", *rust_words.REASONS])
