"""A pod whose clock stands still at chosen instants, and its decision log."""

import os
from pathlib import Path

from suites.rules.configs import LOG_SECRET
from suites.testkit.client import ask
from suites.testkit.process import Rtad


class Pod(Rtad):
    """`rtad serve` with `rtad.toml` of `folder`. Its clock begins at `now`, a datetime in UTC."""

    def __init__(self, folder, now):
        [library] = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        self.folder, self.clock = folder, folder / "now"
        (folder / "log.key").write_text(LOG_SECRET)
        self.write_clock(now)
        variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",
        }
        flags = ["--config", folder / "rtad.toml"]
        super().__init__(*flags, log=folder / "serve.log", variables=variables, cwd=folder)

    def write_clock(self, now):
        written = self.folder / "now.new"
        written.write_text(f"{now:%Y-%m-%d %H:%M:%S}\n")
        os.replace(written, self.clock)

    def set_clock(self, model):
        """Sets the clock to the model's, and waits until the pod has noticed."""
        self.write_clock(model.now)
        self.reload()
        self.until("the time is noticed", lambda: self.has_time_of(model))
        # Requests get the new tables of the caps.
        self.reload()

    def has_time_of(self, model):
        """Whether ages of audiences, schedules and periods of caps are those of its time, and the
        caps have blocks."""
        status = self.status()
        missing = {one["name"] for one in status["audiences"] if not one["available"]}
        holds = {
            one["strategy"]: one["schedule"]["holds"]
            for one in status["rules"]
            if "schedule" in one
        }
        ends = {one["name"]: one["period_end_unix_seconds"] for one in status["caps"]}
        if any(one["granted"] < min(2, one["limit"]) for one in status["caps"]):
            return False
        expected = {name: end.timestamp() for name, (_, end) in model.periods.items()}
        scheduled = {name: one for name, one in model.schedule_holds.items() if one is not None}
        return (missing, holds, ends) == (model.unavailable, scheduled, expected)

    def reload(self):
        reloaded = ask(self.admin, "/v1/reload", b"")
        assert reloaded.status == 200, reloaded
