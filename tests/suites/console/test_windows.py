"""Console of the writer: windows under events, an unreachable service, and languages."""

import re

import pytest
from playwright.sync_api import expect

from suites.console.browsing import Pages
from suites.console.owner import Owner
from suites.testkit.process import Writer


class Windows(Pages):
    """The console of an owner."""

    @pytest.fixture(autouse=True)
    def open_console(self, owner, browser):
        self.owner = owner
        with self.pages(browser, f"http://{owner.admin}/"):
            yield

    def expect_figures(self, page):
        # Rates need two polls.
        figure = self.panel("clicks", page).locator(".figure")
        expect(figure).to_have_text(re.compile(r"^[\d.,]+$"))

    def panel(self, window, page=None):
        heading = (page or self.page).locator("h3", has_text=re.compile(f"^{window}$"))
        return (page or self.page).locator("#panels article", has=heading)

    def fact(self, window, name, page=None):
        """The value of a name in a panel."""
        named = (page or self.page).locator("dt", has_text=re.compile(f"^{name}$"))
        return self.panel(window, page).locator(".facts > div", has=named).locator("dd")


class TestShows(Windows):
    def test_figures_follow_the_events(self):
        panel = self.panel("clicks")
        expect(panel.locator(".pill")).to_contain_text("writable")
        # The thread pauses 20 ms between requests of four events.
        figure = panel.locator(".figure")
        self.wait_for(lambda: 1 <= float(figure.inner_text().replace(",", "")) <= 200)
        filled = panel.locator("p.quiet")
        expect(filled).to_have_text(re.compile(r"^[\d,]+ of 100,000 entries, \d\.\d+%$"))

        def entries():
            return int(filled.inner_text().split()[0].replace(",", ""))

        before = entries()
        self.wait_for(lambda: entries() > before + 10)
        bar = float(panel.locator("progress").get_attribute("value"))
        assert bar == pytest.approx(entries() / 100_000, rel=0.2)
        expect(self.fact("clicks", "Duplicates")).to_have_text("75%")
        expect(self.fact("clicks", "Length")).to_have_text("1 h 30 min")
        expect(self.fact("clicks", "Durability")).to_have_text("fsync before each answer")
        expect(self.fact("clicks", "Log")).to_have_text(re.compile(r"^[1-9][\d.]* (B|kB|MB)$"))
        expect(self.fact("clicks", "False positives")).to_have_text("almost none")

    def test_time_to_expiry_falls(self):
        fact = self.fact("tiny", "Oldest expires in")

        def seconds():
            found = re.fullmatch(r"(?:(\d+) min)? ?(?:(\d+) s)?", fact.inner_text())
            return 60 * int(found[1] or 0) + int(found[2] or 0)

        # Ten minutes in 128 ticks of five seconds.
        before = seconds()
        self.wait_for(lambda: seconds() < before)
        left = 600 - self.owner.windows()["tiny"]["oldest_seconds"]
        assert seconds() == pytest.approx(left, abs=10)

    def test_other_windows_have_their_own_figures(self):
        expect(self.fact("today", "Length")).to_have_text("day, Asia/Shanghai")
        expect(self.fact("today", "Duplicates")).to_have_text("50%")
        expect(self.panel("today").locator(".figure")).to_have_text("0")
        expect(self.panel("tiny").locator("p.quiet")).to_contain_text("32 of 1 entries")
        expect(self.fact("tiny", "Full")).to_have_text("68")
        expect(self.fact("tiny", "Checkpoint age")).to_have_count(0)
        expect(self.fact("today", "Cleared in")).to_have_text(re.compile(r"^[1-9]\d* (h|min|s)\b"))
        # A window whose backend is unreachable.
        expect(self.panel("shared").locator(".pill.bad")).to_contain_text("not writable")
        expect(self.fact("shared", "Backend")).to_have_text("redis")
        expect(self.fact("shared", "Length")).to_have_text("1 d")
        expect(self.panel("shared").locator("progress")).to_have_count(0)
        listed = self.owner.windows()
        problems = self.page.locator("#problems li")
        expect(problems).to_have_count(2)
        expect(problems.first).to_contain_text("shared accepts no events")
        expect(problems.last).to_contain_text("tiny is almost full")
        names = self.page.locator("#panels h3").all_inner_texts()
        assert names == list(listed) and len(names) == 4

    def test_audiences_show_their_lag(self):
        row = self.page.locator("#audiences tbody tr")
        expect(row).to_have_count(1)
        expect(row.locator("th")).to_have_text("clicked")
        expect(row.locator("td").nth(0)).to_have_text("clicks")
        expect(row.locator("td").nth(1)).to_have_text("2")
        expect(row.locator("td").nth(2)).to_have_text(re.compile(r"^[\d.]+ (µs|ms|s)$"))

    def test_page_asks_only_its_own_port(self):
        before = len(self.requests)
        self.wait_for(lambda: len(self.requests) > before + 1)
        urls = {request.url.removeprefix(self.url) for request in self.requests}
        parts = {name for name in urls if name.startswith("console/")}
        assert {"console/windows.js", "console/words.js", "console/zh.js"} <= parts
        assert urls - parts == {"", "v1/windows"}
        assert not any("://" in url for url in urls)


class TestUnreachable(Windows):
    @pytest.fixture(autouse=True)
    def open_console(self, tmp_path, browser):
        # An owner of its own, which stops.
        with Owner(tmp_path) as self.owner:
            with self.pages(browser, f"http://{self.owner.admin}/"):
                yield

    def test_stopped_service_is_marked_until_it_is_back(self):
        page, stale = self.page, self.page.locator("#stale")
        expect(stale).to_be_hidden()
        self.owner.stop()
        try:
            expect(stale).to_contain_text("No response from this process since")
            expect(stale).to_have_attribute("role", "alert")
            assert page.evaluate("getComputedStyle(panels).filter") == "grayscale(1)"
            # The last figures stay.
            expect(self.fact("clicks", "Duplicates")).to_have_text("75%")
            self.check_accessibility(page, "an unreachable service")
            shown = page.locator("#updated").inner_text()
            page.click("#language")
            expect(stale).to_contain_text("进程无响应")
            page.click("#language")
            expect(page.locator("#updated")).to_have_text(shown)
        finally:
            self.owner.start()
        expect(stale).to_be_hidden()
        # Its counters begin at 0: no rate of a billion, or below 0.
        self.expect_figures(page)
        expect(page.locator("#updated")).not_to_have_text(shown)
        self.page_errors = [text for text in self.page_errors if "ERR_" not in text]


class TestWithoutWindows(Pages):
    def expect_figures(self, page):
        expect(page.locator("#updated")).to_contain_text("as of")

    def test_page_says_what_the_service_is(self, tmp_path, browser):
        with Writer(tmp_path, "") as writer, self.pages(browser, f"http://{writer.admin}/"):
            page = self.page
            expect(page.locator("#about")).to_contain_text("The write service of rtad")
            expect(page.locator("#about")).to_contain_text("No window is configured")
            for hidden in ("#windows", "#attention", "#followed", "#stale"):
                expect(page.locator(hidden)).to_be_hidden()
            self.check_accessibility(page, "a writer without windows")


class TestEverybody(Windows):
    """Languages, phones, dark mode and screen readers."""

    def test_language_of_the_browser_and_manual_choice(self):
        page = self.page
        page.click("#language")
        title = "[document.documentElement.lang, document.title].join()"
        assert page.evaluate(title) == "zh-CN,rtad-writer 控制台"
        expect(self.fact("clicks", "重复率")).to_have_text("75%")
        expect(self.fact("today", "长度")).to_have_text("自然日，Asia/Shanghai")
        expect(self.panel("shared").locator(".pill")).to_contain_text("不可写")
        expect(page.locator("#audiences thead th").first).to_have_text("人群包")
        page.reload()
        expect(page.locator("#windows-title")).to_have_text("窗口")
        page.click("#language")
        expect(page.locator("#windows-title")).to_have_text("Windows")
        chinese = self.open(locale="zh-CN")
        expect(chinese.locator("#windows-title")).to_have_text("窗口")

    def test_both_languages_have_all_texts(self):
        composed = "durability evicted is-full late near-full refuses".split()
        self.check_texts(tuple(f"{word}-" for word in composed), ())

    def test_phone_needs_no_horizontal_scrolling(self):
        for locale in ("en-GB", "zh-CN"):
            page = self.open(locale=locale, viewport={"width": 360, "height": 740}, has_touch=True)
            for width in (360, 320):
                page.set_viewport_size({"width": width, "height": 740})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, locale
            self.check_accessibility(page, f"a phone, {locale}")

    def test_light_and_dark_mode_have_no_violations(self):
        grounds = set()
        for scheme in ("light", "dark"):
            page = self.open(color_scheme=scheme)
            self.check_accessibility(page, scheme)
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2
