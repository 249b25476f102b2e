"""Systemd units of packaging/systemd: their settings and command lines."""

import re
import shlex

from suites.testkit.programs import ROOT

FOLDER = ROOT / "packaging/systemd"
ETC = ROOT / "packaging/etc"
SERVICES = ("rtad", "rtad-loader", "rtad-writer")
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    """Bytes of a size such as 5G."""
    return int(text[:-1]) * SIZES[text[-1]]


def environment(path):
    """Variables of an environment file."""
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


class Unit:
    """A service: its settings, each with all its values."""

    def __init__(self, name, folder=FOLDER):
        self.name = name
        self.text = (folder / f"{name}.service").read_text()
        self.settings = {}
        for line in self.text.replace("\\\n", " ").splitlines():
            if found := re.match(r"([\w-]+)=(.*)", line):
                self.settings.setdefault(found[1], []).append(found[2].strip())

    def one(self, name):
        [value] = self.settings[name]
        return value

    def sandbox(self):
        """The lines from the comment of the sandbox to the end of the section."""
        return re.search(r"^# The sandbox.*?(?=^\[|\Z)", self.text, re.M | re.S)[0].strip()

    def folders(self):
        """Folders that the service may write, as systemd makes them."""
        kinds = (("StateDirectory", "/var/lib"), ("CacheDirectory", "/var/cache"))
        values = [(top, value) for kind, top in kinds for value in self.settings.get(kind, [])]
        return [f"{top}/{name}" for top, value in values for name in value.split()]

    def credentials(self):
        """The folder of credentials, and each of them with its source."""
        sources = dict(value.split(":") for value in self.settings.get("LoadCredential", []))
        return f"/run/credentials/{self.name}.service", sources

    def commands(self, variables):
        """Command lines, with variables and specifiers as systemd replaces them."""
        folder, _ = self.credentials()
        for line in self.settings["ExecStart"]:
            words = []
            for word in shlex.split(line):
                if found := re.fullmatch(r"\$(\w+)", word):
                    words += variables[found[1]].split()
                else:
                    word = re.sub(r"\$\{(\w+)\}", lambda one: variables[one[1]], word)
                    words.append(word.replace("%d", folder))
            yield words
