"""The page: one well-formed document that needs nothing else and shows what the report says."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tokenspeed.simulate.chart import Axis, Chart, Line
from tokenspeed.simulate.html import render_html, render_sweep_html
from tokenspeed.simulate.player import Player
from tokenspeed.simulate.report import Report
from tokenspeed.simulate.scenario import Scenario

VOID = {"meta", "br", "line", "circle", "path", "polygon"}


class Page(HTMLParser):
    """Checks that tags are balanced; collects tags, attributes and the text of scripts."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.data: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "srcset")]
        self.links += [v for n, v in attrs if n == "style" and "url(" in (v or "")]
        if tag == "script" and dict(attrs).get("type") == "application/json":
            self.data.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"] and self.data and not self.data[-1]:
            self.data[-1] = data
        self.text += data


@pytest.fixture
def report(trace_of):
    trace = trace_of(*((40 * i, 900 + 13 * i, 5, [1, i + 2]) for i in range(30)))
    scenario = Scenario.of({"num_device_pages": 60, "num_host_pages": 60})
    return Report.of(Player(trace, scenario).run(), scenario)


def test_page_is_well_formed_and_self_contained(report):
    source = render_html(report)
    page = Page(source)
    assert page.tags.count("svg") == page.tags.count("figure") == 8
    assert page.links == []
    assert "http://" not in source
    assert "https://" not in source
    assert "@import" not in source
    assert "url(" not in source
    for words in ("Time to first token", "Device pool", "num_device_pages", "30 requests"):
        assert words in page.text


def test_every_chart_carries_its_points(report):
    page = Page(render_html(report))
    charts = [json.loads(data) for data in page.data]
    assert len(charts) == 8
    for chart in charts:
        for line in chart:
            assert line["points"]
            assert all(len(point) == 3 for point in line["points"])
    assert not re.search(r"\b(nan|inf)\b", "".join(page.data))


def test_foreign_text_is_escaped(report):
    name = '<script>alert("x")</script>.jsonl'
    refused = [{"request": 1, "at_s": 0.0, "reason": "<b>too large</b>"}]
    report = replace(report, trace=replace(report.trace, name=name), refused=refused)
    source = render_html(report)
    assert name not in source
    assert "<b>too large</b>" not in source
    assert "&lt;b&gt;too large&lt;/b&gt;" in source
    Page(source)


def test_sweep_page_shows_every_point(report):
    other = replace(report, settings={**report.settings, "num_device_pages": 999})
    page = Page(render_sweep_html("num_device_pages", [other, report]))
    assert page.tags.count("svg") == 6
    assert page.links == []
    assert "999" in page.text
    hits = json.loads(page.data[0])
    assert [line["name"] for line in hits] == ["device", "host"]
    assert [words for _, words, _ in hits[0]["points"]] == ["60", "999"]


def test_linear_axis_ticks_are_round_and_end_it():
    axis = Axis.linear(0.0, 87.0, 100.0, 0.0, round_up=True)
    assert list(axis.ticks) == [0, 20, 40, 60, 80, 100]
    assert axis.place(0.0) == 100.0
    assert axis.place(100.0) == 0.0
    assert axis.place(50.0) == 50.0


def test_logarithmic_axis():
    axis = Axis.logarithmic([0.01, 1.0], 0.0, 100.0)
    assert list(axis.ticks) == pytest.approx([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    assert axis.place(0.1) == pytest.approx(50.0)


def test_gap_in_a_line_lifts_the_pen():
    line = Line("a", [0.0, 1.0, 2.0, 3.0], [1.0, 1.0, None, 1.0])
    figure = Chart("t", "n", "x", [line]).figure()
    path = re.search(r'<path class="line c0" d="([^"]*)"', figure)[1]
    assert [step[0] for step in re.findall(r"[ML][^ML]*", path)] == ["M", "L", "M"]


def test_stacked_areas_lie_on_one_another():
    lines = [Line("a", [0.0, 1.0], [1.0, 3.0]), Line("b", [0.0, 1.0], [2.0, 2.0], tone=1)]
    figure = Chart("t", "n", "x", lines, stacked=True).figure()
    lower, upper = (
        [tuple(map(float, point.split(","))) for point in polygon.split()]
        for polygon in re.findall(r'points="([^"]*)"', figure)
    )
    assert upper[2:] == list(reversed(lower[:2]))
