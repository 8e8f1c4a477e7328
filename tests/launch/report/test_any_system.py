"""Reports where only Python and a few packages are: on Windows much of Python is missing, and its text files are not in UTF-8."""

from launch import compare
from tests.support.running import BIN, ROOT, completed

AS_WINDOWS = {
    "PYTHONPATH": str(ROOT / "tests/support/as_windows"),
    "PYTHONWARNDEFAULTENCODING": "1",
    # Otherwise Python replaces the locale C by UTF-8.
    "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0",
}  # fmt: skip


def test_a_report_needs_nothing_that_windows_lacks(tmp_path):
    exports = {option: tmp_path / f"report.{option.strip('-')}" for option in compare.EXPORTS}
    # The second writing replaces the first.
    exports["--csv"].write_text("before")
    arguments = [part for export in exports.items() for part in export]
    records = ROOT / "results/reference/zen5-mkl"
    done = completed(BIN / "python", "-m", "launch.compare", records, "--full", *arguments, variables=AS_WINDOWS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "AMD EPYC" in done.stdout
    starts = {"--markdown": "# Tandem on", "--csv": "run_id,", "--html": "<!DOCTYPE html>", "--svg": "<svg"}
    texts = {option: path.read_text("utf-8") for option, path in exports.items()}
    assert {option: text[: len(starts[option])] for option, text in texts.items()} == starts
    assert "\u00a0" in texts["--html"]
