"""Console: figures, lookups, failures, languages and accessibility."""

import base64
import json
import re

from playwright.sync_api import expect

from suites.console.browsing import Console, OtherSite, proxy_handler
from suites.console.pod import MEMBERS, NON_MEMBERS, md5, tencent


class TestShows(Console):
    def test_figures_move_under_traffic(self):
        page = self.page
        figure = page.locator("#panels .figure").first
        expect(figure).to_have_text(re.compile(r"[1-9]"))
        before = len(self.traffic)
        routes = self.table("By route").locator("tbody tr")
        expect(routes.filter(has_text="decide").locator("td").first).to_have_text(
            re.compile(r"[1-9]")
        )
        tencent = routes.filter(has_text="tencent").locator("td")
        assert re.search("[1-9]", tencent.nth(0).inner_text())
        for quantile in (1, 2, 3):
            assert re.search("(µs|ms)$", tencent.nth(quantile).inner_text())
        page.get_by_role("button", name="last 10 s").click()
        strategies = self.table("By strategy").locator("tbody tr", has_text="new-users")
        rule = strategies.filter(has_text="tencent").locator("td")
        expect(rule.nth(1)).to_have_text(re.compile(r"[1-9]\d*%"))
        expect(rule.nth(2)).to_have_text(re.compile(r"^non-member [1-9]\d*%$"))
        expect(rule.nth(3)).to_have_text(re.compile(r"^member [1-9]\d*%$"))
        keys = page.locator("#panels .legend").first.locator(".key")
        colors = keys.evaluate_all("keys => keys.map((key) => getComputedStyle(key).background)")
        assert len(set(colors)) == len(colors) > 2
        drawn = "document.querySelector('.chart polygon').points.length"
        points = page.evaluate(drawn)
        self.wait_for(lambda: page.evaluate(drawn) > points)
        assert len(self.traffic) > before

    def test_decisions_since_the_start_are_counted_by_reason(self):
        rows = self.table("By strategy").locator("tbody tr", has_text="new-users")
        row = rows.filter(has_text="tencent")
        cells = row.locator("td")
        expect(cells.nth(2)).to_have_text(re.compile(r"^non-member [\d,]+$"))
        expect(cells.nth(3)).to_have_text(re.compile(r"^member [\d,]+$"))

        def counts():
            texts = row.evaluate("row => [...row.cells].map((cell) => cell.textContent)")
            return [int(re.sub(r"\D", "", texts[column])) for column in (1, 3, 4)]

        before = counts()
        self.wait_for(lambda: counts()[0] > before[0])
        decided, bids, no_bids = counts()
        assert decided == bids + no_bids

    def test_strategies_in_shadow_are_marked(self):
        rows = self.table("By strategy").locator("tbody tr")
        for span in ("since the start", "last 10 s"):
            self.page.get_by_role("button", name=span).click()
            trial = rows.filter(has_text="trial tencent").locator("td, th")
            expect(trial.first).to_have_text("trial tencent, in shadow: not answered")
            expect(trial.nth(1)).to_have_text(re.compile("[1-9]"))
        expect(rows.filter(has_text="new-users").filter(has_text="in shadow")).to_have_count(0)

    def test_rules_are_shown_in_words(self):
        rows = self.table("Rules").locator("tbody tr")
        expect(rows.filter(has_text="new-users").locator("td")).to_have_text(
            ["not in old_users", "always", "–", "–"]
        )
        cells = rows.filter(has_text="trial in shadow").locator("td")
        expect(cells.nth(0)).to_have_text("not in vipany(bucket(half:a), bucket(half:b))")
        expect(cells.nth(1)).to_contain_text("bids now until")
        expect(cells.nth(2)).to_have_text(re.compile(r"old_users: weight 2 \([1-9][\d,]* bids\)others: weight 1 \([1-9][\d,]* bids\)"))
        expect(cells.nth(3)).to_contain_text(re.compile(r"half:a: [1-9][\d,]* decisions, \d+"))

    def test_cap_is_shown_with_its_limit(self):
        rows = self.table("Caps of distinct devices").locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows.locator("th")).to_have_text("hourly new-vip")
        expect(rows.locator("td").nth(0)).to_have_text(re.compile("% *[\\d,]+ of [\\d,]+ devices here *all pods: [\\d,]+ of 1,000,000 granted"))
        expect(rows.locator("td").nth(1)).to_contain_text("hour in UTC")

    def test_reached_cap_needs_attention_until_its_zone_begins_a_day(self):
        page, problems = self.page, self.page.locator("#problems")
        expect(problems).to_contain_text("Nothing needs attention")

        def reached(route):
            answer = route.fetch()
            status = answer.json()
            # A day of Shanghai ends at 16:00 UTC, the zone of the browser is another.
            status["caps"][0] |= {
                "devices": 150,
                "granted": 150,
                "limit": 600,
                "grants": {"all_devices": 600, "created": 1, "failed": 0},
                "period": "day",
                "time_zone": "Asia/Shanghai",
                "period_end_unix_seconds": 4_000_032_000 // 86400 * 86400 + 16 * 3600,
            }
            route.fulfill(response=answer, json=status)

        page.route("**/v1/status", reached)
        expect(problems).to_contain_text("The cap hourly is reached")
        expect(problems).to_contain_text(
            re.compile(r"All 600 devices were granted.* until \w+ \d+ 00:00:00 \(Asia/Shanghai\)")
        )
        row = self.table("Caps of distinct devices").locator("tbody tr")
        expect(row).to_contain_text(re.compile(r"100% *150 of 150 devices here"))
        expect(row).to_contain_text(re.compile(r"ends \w+ \d+ 00:00:00, in"))
        self.check_accessibility(page, "a reached cap")

    def test_audience_details_and_map_are_shown(self):
        card = self.page.locator("#audience-old_users")
        for text in (
            "available",
            "required",
            "Generation",
            "block512",
            "one in",
            "loaded, verified",
        ):
            expect(card).to_contain_text(text)
        # Other tests publish more.
        expect(card).to_contain_text(re.compile("30[01],000"))
        canvas = card.locator("canvas")
        expect(card.locator(".beside")).to_contain_text("keys per shard")
        colors = "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, 256, 256).data.buffer)).size"
        assert canvas.evaluate(colors) > 8
        canvas.scroll_into_view_if_needed()
        canvas.hover(position={"x": canvas.bounding_box()["width"] - 0.5, "y": 0.5})
        expect(card.locator(".readout")).to_contain_text("Shard 00ff")
        # Fetched once per generation, and never while the map is closed.
        requests = [request.url for request in self.requests if request.url.endswith("/shards")]
        assert requests == [f"{self.url}v1/audiences/old_users/shards"]
        vip = self.page.locator("#audience-vip")
        vip.locator(".shards summary").click()
        expect(vip.locator(".beside")).to_contain_text("empty shards")
        block = "c => [...c.getContext('2d').getImageData(80, 100, 1, 1).data].join()"
        assert vip.locator("canvas").evaluate(block) != canvas.evaluate(block)
        # A warning about reading pixels, which only the test does.
        self.page_errors = [text for text in self.page_errors if "Canvas2D" not in text]

    def test_pause_stops_polling(self):
        self.page.click("#pause")
        expect(self.page.locator("#updated")).to_contain_text("paused")
        self.page.wait_for_load_state("networkidle")
        before = len(self.requests)
        self.page.wait_for_timeout(1000)
        assert len(self.requests) == before
        # Opening a map still fetches it.
        self.page.locator("#audience-vip .shards summary").click()
        expect(self.page.locator("#audience-vip .beside")).to_contain_text("empty shards")
        assert len(self.requests) == before + 1
        with self.page.expect_request("**/metrics"):
            self.page.click("#pause")

    def test_suspended_laptop_shows_no_burst_of_requests(self):
        """The page's clock stops during suspend, the pod's counters do not."""
        page = self.page
        seen = "window.figures = []; new MutationObserver(() => window.figures.push(document.querySelector('#panels .figure').textContent))"
        page.evaluate(
            seen
            + ".observe(document.getElementById('panels'), { childList: true, characterData: true, subtree: true })"
        )

        def an_hour_later(route):
            answer = route.fetch()
            route.fulfill(
                response=answer,
                json={**answer.json(), "uptime_seconds": answer.json()["uptime_seconds"] + 3600},
            )

        def a_billion_more(route):
            answer = route.fetch()
            count = re.compile(
                r'^(rtad_request_duration_seconds_count{route="tencent"}) (\d+)$', re.MULTILINE
            )
            route.fulfill(
                response=answer,
                body=count.sub(lambda found: f"{found[1]} {int(found[2]) + 10**9}", answer.text()),
            )

        page.route("**/v1/status", an_hour_later)
        page.route("**/metrics", a_billion_more)
        before = page.evaluate("window.figures.length")
        self.wait_for(lambda: page.evaluate("window.figures.length") > before + 2)
        figures = [float(figure.replace(",", "")) for figure in page.evaluate("window.figures")]
        assert max(figures) < 1e6


class TestLookups(Console):
    def test_member_non_member_and_blank_id(self):
        device = MEMBERS[7]
        answer = self.look_up(f"  {device}\n")
        reading = answer.locator("article", has_text="Read as imei")
        for text in (
            md5(device),
            md5(device)[:4],
            "no bid",
            "it is in old_users, which this strategy excludes",
            "generation",
        ):
            expect(reading).to_contain_text(text)
        answer = self.look_up(md5(device).upper(), "md5")
        expect(answer.locator("article")).to_have_count(1)
        expect(answer).to_contain_text("it is in old_users")
        answer = self.look_up(NON_MEMBERS[0], "imei")
        expect(answer.locator("tr", has_text="new-users")).to_contain_text(
            "it is in none of old_users"
        )
        expect(answer.locator("tr", has_text="new-vip")).to_contain_text(
            "its condition does not hold: vip"
        )
        answer = self.look_up("__IMEI__", "imei")
        expect(answer).to_contain_text("It is a placeholder for “no id”")
        expect(answer.locator("tr", has_text="new-users")).to_contain_text("there is no usable id")
        answer = self.look_up("12 34", "imei")
        expect(answer).to_contain_text("It is not valid for this kind.")
        self.page.fill("#pasted", " ")
        self.page.click("form .main")
        expect(self.page.locator("#answer")).to_contain_text("Paste an id")

    def test_captured_request(self):
        body = tencent(MEMBERS[3])
        for text in (body.hex(), base64.b64encode(body).decode()):
            answer = self.look_up(text, "platform tencent")
            for part in (
                "T1001 = new-users",
                "it is in old_users",
                "device.imei_md5sum",
                "request_id",
                "code: 1",
                "not required",
            ):
                expect(answer).to_contain_text(part)
            status, explained = self.pod.post("/v1/explain/tencent", body)
            assert status == 200
            expect(answer.locator("pre")).to_contain_text(explained["answer"]["hex"])
        answer = self.look_up("ff", "platform tencent")
        expect(answer.locator(".notice.bad")).to_contain_text(
            "not a valid message of this protocol"
        )
        expect(answer).to_contain_text("no audience was checked")
        # This platform requires a header, which the pasted body lacks.
        self.look_up("ff", "platform ocean")
        expect(answer).to_contain_text("not checked: none were given")

    def test_member_of_a_batch_is_explained_by_its_audience(self):
        body = json.dumps({"devices": [md5(MEMBERS[3]), md5("somebody")]}).encode()
        answer = self.look_up(body.hex(), "platform batch")
        expect(answer).to_contain_text("it is in old_users")

    def test_request_to_decide(self):
        device = {"imei_md5": md5(MEMBERS[3]), "oaid": "a b"}
        answer = self.look_up(json.dumps({"device": device}), "platform api")
        expect(answer).to_contain_text("it is in old_users")
        expect(answer).to_contain_text("device.oaid")
        answer = self.look_up('{"strategies": ["none"]}', "platform api")
        expect(answer.locator(".notice.bad")).to_contain_text("a strategy that the config does not")

    def test_pasted_request_is_recognized(self):
        request, device = tencent(MEMBERS[3]).hex(), MEMBERS[3]
        for pasted, chosen in (
            (request, "platform"),
            (device, "any"),
            (request, "platform"),
            (" ", "any"),
        ):
            self.page.fill("#pasted", pasted)
            assert self.page.input_value("#what") == chosen
        # A manual choice stays.
        for choice in ("platform ocean", "imei"):
            self.page.select_option("#what", choice)
            for pasted in (request, device):
                self.page.fill("#pasted", pasted)
                assert self.page.input_value("#what") == choice

    def test_pasted_request_is_tried_on_every_platform(self):
        answer = self.look_up(tencent(MEMBERS[3]).hex(), "platform")
        expect(answer.locator("article")).to_have_count(1)
        expect(answer).to_contain_text("Request of tencent")
        expect(answer).to_contain_text("it is in old_users")
        # Readable by none: every platform's reason is shown.
        answer = self.look_up("ff", "platform")
        expect(answer.locator(".notice.bad").first).to_contain_text(
            "not a valid message of this protocol"
        )

    def test_late_answer_to_an_older_lookup_is_ignored(self):
        delayed = []
        self.page.route(
            "**/v1/explain", lambda route: route.continue_() if delayed else delayed.append(route)
        )
        self.page.fill("#pasted", MEMBERS[1])
        self.page.click("form .main")
        self.wait_for(lambda: delayed)
        answer = self.look_up(MEMBERS[2], "imei")
        expect(answer).to_contain_text(md5(MEMBERS[2]))
        with self.page.expect_response("**/v1/explain"):
            delayed[0].continue_()
        self.page.wait_for_timeout(300)
        expect(answer).to_contain_text(md5(MEMBERS[2]))
        expect(answer).not_to_contain_text(md5(MEMBERS[1]))

    def test_repeated_answer_is_announced_again(self):
        page = self.page
        page.evaluate("""window.announced = []; new MutationObserver(() => window.announced.push(document.getElementById('announce').textContent))
            .observe(document.getElementById('announce'), { childList: true, characterData: true, subtree: true })""")
        for times in (1, 2):
            self.look_up(MEMBERS[9], "imei")
            self.wait_for(
                lambda: (
                    len(
                        [
                            text
                            for text in page.evaluate("window.announced")
                            if "new-users no bid" in text
                        ]
                    )
                    == times
                )
            )

    def test_pasted_ids_are_not_in_urls_or_storage(self):
        device = MEMBERS[11]
        self.look_up(device)
        self.look_up(tencent(device).hex(), "platform tencent")
        for request in self.requests:
            assert device not in request.url
            assert md5(device) not in request.url
        assert device not in self.page.evaluate(
            "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href])"
        )

    def test_refusal_is_shown(self):
        self.page.route(
            "**/v1/explain",
            lambda route: route.fulfill(
                status=413,
                content_type="application/problem+json",
                body='{"title":"Too large","status":413,"code":"too_large","detail":"the body is over 9 bytes"}',
            ),
        )
        self.page.fill("#pasted", "x")
        self.page.click("form .main")
        expect(self.page.locator("#answer")).to_contain_text("Too large: the body is over 9 bytes")
        self.page_errors = [text for text in self.page_errors if "413" not in text]


class TestFailing(Console):
    def test_broken_and_missing_store_are_explained(self):
        page = self.page
        problems, card = page.locator("#problems"), page.locator("#audience-old_users")
        expect(problems).to_contain_text("Nothing needs attention")
        for broken, means, todo in (
            (self.pod.broken_store(), "Invalid field in a file", "Upgrade rtad"),
            (
                self.pod.lost_store(),
                "is not in the store",
                "rtad-loader build --audience old_users",
            ),
        ):
            with broken:
                expect(problems).to_contain_text("old_users is not being updated")
                expect(problems).to_contain_text(means)
                expect(problems).to_contain_text("the last good one, is still served")
                expect(card.locator(".notice")).to_contain_text(todo)
                expect(card.locator(".notice code").last).to_contain_text("old_users")
                expect(card.locator("tbody tr").first).to_contain_text(means)
                expect(page.locator("#announce")).to_contain_text("old_users is not being updated")
                self.check_accessibility(page, "a failing store")
            expect(problems).to_contain_text("Nothing needs attention")
            expect(card.locator(".notice")).to_be_hidden()

    def test_refused_config_is_shown(self):
        problems = self.page.locator("#problems")
        with self.pod.broken_config():
            expect(problems).to_contain_text("The changed configuration was refused")
            expect(problems).to_contain_text("accepted: a size")
            expect(problems).to_contain_text("nonsense is not known")
            self.check_accessibility(self.page, "a refused config")
        expect(problems).to_contain_text("Nothing needs attention")

    def test_new_generation_and_delta_are_shown(self):
        card = self.page.locator("#audience-old_users")
        expect(card.locator(".beside")).to_contain_text("keys per shard")
        generation = int(card.locator("dd").first.inner_text().split()[0])
        with self.page.expect_response("**/shards"):
            self.pod.publish_again()
        expect(card.locator("dd").first).to_contain_text(f"{generation + 1}")
        expect(card).to_contain_text("301,000")
        expect(card.locator("tbody")).to_contain_text(f"Generation {generation + 1} was loaded")
        self.pod.change()
        expect(card).to_contain_text("+1 −2")
        expect(card.locator("tbody")).to_contain_text(
            f"Changes to generation {generation + 1} were loaded"
        )

    def test_stale_figures_are_marked(self):
        page = self.page
        page.route("**/metrics", lambda route: route.abort())
        expect(page.locator("#stale")).to_contain_text("No response from this pod since")
        assert page.locator("#audience-old_users").is_visible()
        with self.pod.broken_store():
            self.wait_for(
                lambda: (
                    self.pod.status()["audiences"][0]["last_sync"]["result"]
                    not in ("ok", "unchanged")
                )
            )
            page.unroute("**/metrics")
            expect(page.locator("#stale")).to_be_hidden()
            # Later changes do not hide the mark.
            expect(page.locator("#announce")).to_contain_text("old_users is not being updated")
            expect(page.locator("#announce")).to_contain_text("The pod responds again")
        expect(page.locator("#problems")).to_contain_text("Nothing needs attention")
        self.page_errors = [text for text in self.page_errors if "ERR_FAILED" not in text]

    def test_invalid_answers_do_not_stop_the_page(self):
        page = self.page
        page.route("**/v1/status", lambda route: route.fulfill(json={"ready": True}))
        expect(page.locator("#stale")).to_contain_text("(Cannot read properties")
        notice = page.locator("#stale").inner_text()
        self.wait_for(lambda: len(self.page_errors) > 2)
        assert page.locator("#stale").inner_text() == notice, "shown once"
        page.unroute("**/v1/status")
        expect(page.locator("#stale")).to_be_hidden()
        assert all("undefined" in text for text in self.page_errors), self.page_errors
        self.page_errors = []

    def test_cross_site_requests_are_refused(self):
        site = self.serve(OtherSite)
        page = self.browser.new_context().new_page()
        self.closing.callback(page.context.close)
        page.goto(f"http://localhost:{site.server_port}/")
        for path in ("v1/reload", "v1/explain", "v1/explain/tencent"):
            with page.expect_response(f"**/{path}") as seen:
                page.evaluate(
                    "url => fetch(url, { method: 'POST', mode: 'no-cors', body: '{}' }).then(() => 0, () => 0)",
                    self.url + path,
                )
            assert seen.value.status == 403, path
        kept_out = "url => fetch(url).then((answer) => answer.text(), (error) => error.name)"
        assert page.evaluate(kept_out, f"{self.url}v1/status") == "TypeError"

    def test_page_works_behind_a_proxy_with_a_path(self):
        site = self.serve(proxy_handler(self.pod.admin))
        page = self.open(f"http://localhost:{site.server_port}/pods/7/")
        expect(page.locator("#audience-old_users .beside")).to_contain_text("keys per shard")
        self.look_up(MEMBERS[0], "imei", page)
        expect(page.locator("#answer")).to_contain_text("it is in old_users")


class TestLanguages(Console):
    def test_language_of_the_browser_and_manual_choice(self):
        page = self.page
        assert page.evaluate("document.documentElement.lang") == "en"
        self.look_up(MEMBERS[0], "imei")
        page.click("#language")
        assert (
            page.evaluate("[document.documentElement.lang, document.title].join()")
            == "zh-CN,rtad 控制台"
        )
        for where, text in (
            ("#traffic", "请求"),
            ("#cards", "最近的同步"),
            ("#answer", "该策略排除这些人群"),
            ("#problems", "一切正常"),
        ):
            expect(page.locator(where)).to_contain_text(text)
        page.reload()
        expect(page.locator("#traffic-title")).to_have_text("流量")
        page.click("#language")
        expect(page.locator("#traffic-title")).to_have_text("Traffic")
        chinese = self.open(locale="zh-CN")
        expect(chinese.locator("#traffic-title")).to_have_text("流量")


class TestEverybody(Console):
    """Phones, dark mode, keyboards and screen readers."""

    def test_phone_needs_no_horizontal_scrolling(self):
        for locale in ("en-GB", "zh-CN"):
            page = self.open(locale=locale, viewport={"width": 360, "height": 740}, has_touch=True)
            self.look_up(tencent(MEMBERS[1]).hex(), "platform tencent", page)
            for width in (360, 320):
                page.set_viewport_size({"width": width, "height": 740})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, locale
            self.check_accessibility(page, f"a phone, {locale}")

    def test_no_table_is_cut_at_any_width(self):
        cut = """[...document.querySelectorAll('.scroll')]
            .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"""
        for locale in ("en-GB", "zh-CN"):
            page = self.open(locale=locale)
            self.look_up(tencent(MEMBERS[1]).hex(), "platform tencent", page)
            for width in (390, 768, 1024, 1280, 1920):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate(cut) == [], (locale, width)

    def test_phone_starts_with_polls_and_maps_closed(self):
        page = self.open(viewport={"width": 390, "height": 844})
        expect(page.locator("details")).to_have_count(4)
        expect(page.locator("details[open]")).to_have_count(0)
        strategy = page.locator("#tables tbody tr").first.locator("td").first
        label = "cell => getComputedStyle(cell, '::before').content"
        assert "Decisions" in strategy.evaluate(label)

    def test_light_and_dark_mode_have_no_violations(self):
        grounds = set()
        for scheme in ("light", "dark"):
            page = self.open(color_scheme=scheme)
            self.look_up(MEMBERS[2], page=page)
            expect(page.locator("#audience-old_users .beside")).to_contain_text("keys per shard")
            self.check_accessibility(page, scheme)
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2

    def test_keyboard_reaches_everything(self):
        page = self.page
        focus = "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
        page.keyboard.press("Tab")
        assert page.evaluate(focus) == "skip"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(focus) == "pasted":
                break
        assert page.evaluate(focus) == "pasted"
        page.keyboard.type(MEMBERS[5])
        page.keyboard.press("Tab")
        page.keyboard.type("imei")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_contain_text("it is in old_users")
        card = page.locator("#audience-old_users")
        expect(card.locator(".beside")).to_contain_text("keys per shard")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.tagName") == "CANVAS":
                break
        for key, shard in (
            ("ArrowRight", "0001"),
            ("ArrowDown", "0101"),
            ("End", "01ff"),
            ("PageDown", "11ff"),
            ("ArrowUp", "10ff"),
            ("Home", "1000"),
        ):
            page.keyboard.press(key)
            expect(card.locator(".readout")).to_contain_text(f"Shard {shard}")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"

    def test_unchanged_content_is_stable_for_screen_readers(self):
        page = self.page
        page.evaluate(
            "window.kept = [...document.querySelectorAll('#tables tr, #cards article, #pasted, canvas, #problems li')]"
        )
        page.evaluate(
            "window.announced = 0; new MutationObserver(() => window.announced++).observe(document.getElementById('announce'), { childList: true, subtree: true })"
        )
        keys = page.locator("#panels .legend").first.locator(".key")
        colors = keys.evaluate_all("keys => keys.map((key) => getComputedStyle(key).background)")
        assert len(set(colors)) == len(colors) > 2
        drawn = "document.querySelector('.chart polygon').points.length"
        points = page.evaluate(drawn)
        self.wait_for(lambda: page.evaluate(drawn) > points + 2)
        assert page.evaluate("window.kept.filter((one) => !one.isConnected).length") == 0
        assert page.evaluate("window.announced") == 0, "unchanged content is not announced"
