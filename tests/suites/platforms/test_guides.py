"""The guides to platforms: every block, in order, with Google's protobuf classes as the client."""

import re

import pytest

from suites.platforms.guide import Guide, blocks_of

LANGUAGES = pytest.mark.parametrize("language", [".md", ".zh-CN.md"], ids=["English", "Chinese"])


@pytest.fixture
def guide(tmp_path):
    with Guide(tmp_path) as guide:
        yield guide


@LANGUAGES
def test_tencent(guide, language):
    guide.follow(*blocks_of(f"integrate-tencent{language}"))
    # The ping, and the request.
    assert guide.answers == 2


@LANGUAGES
def test_ocean(guide, language):
    config, start, load, *_ = blocks_of(f"integrate-tencent{language}")
    platform, request = blocks_of(f"integrate-ocean-engine{language}")
    guide.follow(config, platform, start, load, request)
    assert guide.answers == 1


@LANGUAGES
def test_mapped_platform(guide, language):
    mapping, start, request, signature, secret, explain = blocks_of(f"map-a-platform{language}")
    # What the platform sends.
    (guide.folder / "captured.json").write_text(re.search("-d '(.*)'", request[1])[1])
    guide.follow(mapping, start, request, signature, secret, explain)
    # A wrong signature is counted, and the request is answered.
    guide.serve("rtad serve --config rtad.toml")
    guide.follow(request)
    assert guide.answers == 2
