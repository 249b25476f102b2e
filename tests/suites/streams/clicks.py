"""Files of clicks for a job, and the result that it must have."""

import collections
import json
import random

from suites.testkit.programs import synth

DEVICES, REPEATED, UNUSABLE, FILES = 3000, 1500, 60, 6
EVENTS = DEVICES + REPEATED + UNUSABLE


class Clicks:
    """A folder of files with clicks, each device at least once."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self.devices = synth(DEVICES, "--id-kind", "oaid")
        ids = [*self.devices, *self.devices[:REPEATED], *[None] * UNUSABLE]
        random.Random(1).shuffle(ids)
        for number in range(FILES):
            lines = [json.dumps({"id": one}) for one in ids[number::FILES]]
            (folder / f"{number}.json").write_text("\n".join(lines) + "\n")

    def assert_each_new_once(self, writer, rows):
        expected = {"new": DEVICES, "duplicate": REPEATED, "unusable": UNUSABLE}
        assert writer.events() == expected
        assert len(rows) == EVENTS
        new = collections.Counter(row["id"] for row in rows if row.get("new"))
        assert sorted(new) == sorted(self.devices)
        assert set(new.values()) == {1}
        counts = collections.Counter(row.get("count") for row in rows)
        assert counts == {1: DEVICES, 2: REPEATED, None: UNUSABLE}

    def assert_no_id_is_logged(self, logs):
        text = "".join(path.read_text() for path in logs)
        assert [one for one in self.devices if one in text] == []
