"""The command line: what it prints, what it writes, and how it fails."""

import json
import re

import pytest
import tokenspeed
from tokenspeed import cli

ROWS = [(40 * i, 900, 3, [1, i + 2]) for i in range(12)]


@pytest.fixture
def run(capsys):
    """Runs `tokenspeed` with these words; gives (exit code, standard output, standard error)."""

    def run(*words):
        try:
            cli.main([str(word) for word in words])
            code = 0
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_help_teaches(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "tokenspeed replay" in out
    code, out, _ = run("replay", "--help")
    assert code == 0
    for words in (
        "Examples:",
        "--num-device-pages",
        "--prefix-granularity",
        "--max-scheduled-tokens",
        "--prefill-token-us",
        "--time-scale",
        "--sweep",
        "--json",
        "--html",
        "--perfetto",
    ):
        assert words in out
    assert run()[:2] == (0, run("--help")[1])
    assert run("--version")[1] == f"tokenspeed, version {tokenspeed.__version__}\n"


def test_table(run, mooncake_file):
    code, out, err = run("replay", mooncake_file(*ROWS))
    assert code == 0
    assert "12 requests over 440 ms" in out
    assert "Time to first token" in out
    assert err == ""


def test_json_is_all_of_standard_output(run, mooncake_file):
    code, out, err = run("replay", mooncake_file(*ROWS), "--json", "--num-host-pages", 0)
    report = json.loads(out)
    assert code == 0
    assert report["outcome"]["finished_requests"] == 12
    assert report["settings"]["num_host_pages"] == 0
    assert err == ""


def test_files(run, mooncake_file, tmp_path):
    page, line = tmp_path / "page.html", tmp_path / "line.json"
    code, _, err = run(
        "replay", mooncake_file(*ROWS), "--html", page, "--perfetto", line,
        "--perfetto-max-events", 20,
    )  # fmt: skip
    assert code == 0
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(line.read_text())["traceEvents"]
    assert f"page: {page}" in err
    assert "raise --perfetto-max-events" in err


def test_sweep(run, mooncake_file, tmp_path):
    page = tmp_path / "page.html"
    words = ("replay", mooncake_file(*ROWS), "--sweep", "num_device_pages=20,30")
    code, out, _ = run(*words, "--html", page)
    assert code == 0
    assert "num_device_pages over trace.jsonl" in out
    assert "What num_device_pages changes" in page.read_text()
    reports = json.loads(run(*words, "--json")[1])
    assert [report["settings"]["num_device_pages"] for report in reports] == [20, 30]


def test_default_trace_is_the_shipped_one(run):
    code, out, _ = run("replay", "--limit", 5, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["trace"]["name"] == "mooncake_conversation_trace.jsonl.gz"
    assert report["trace"]["requests"] == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nonsense"], "tokenspeed: error: No such option.*--nonsense.*see tokenspeed --help"),
        (["relay"], "No such command 'relay'.*see tokenspeed --help"),
        (["replay", "--nonsense"], "tokenspeed replay: error: No such option"),
        (["replay", "--num-device-pages", "many"], "'many' is not a valid integer"),
        (["replay", "--num-device-pages", "1"], "num_device_pages is 1; it needs at least 2"),
        (["replay", "--num-device-pages", "3000000000"], "it must be at most 2147483647"),
        (["replay", "--sweep", "pages=1,2"], "there is no setting 'pages'"),
        (["replay", "--sweep", "round_us=1,2", "--perfetto", "x"], "cannot go with --sweep"),
        (["replay", "--perfetto-from", "5", "--perfetto-to", "1"], "nothing starts in 5 s to 1 s"),
        (["replay", "--perfetto-from", "nan"], "nothing starts in nan s"),
        (["replay", "--html", "/no/such/folder/x.html"], "there is no folder /no/such/folder"),
        (["replay", "/no/such/trace"], "/no/such/trace: No such file.*name a Mooncake or Azure"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, words, says):
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert re.search(says, err)


def test_malformed_line_is_named(run, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 1}\n')
    code, _, err = run("replay", path)
    assert code == 2
    assert err == f"tokenspeed: error: {path} line 1: `hash_ids` is missing\n"


def test_standstill_is_one_line_and_exit_code_1(run, mooncake_file, monkeypatch):
    def stand_still(self):
        raise cli.Standstill("the replay stands still")

    monkeypatch.setattr(cli.Player, "run", stand_still)
    code, out, err = run("replay", mooncake_file(*ROWS))
    assert (code, out) == (1, "")
    assert err == "tokenspeed: error: the replay stands still\n"
