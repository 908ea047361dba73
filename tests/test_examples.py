"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_daily_counts_give_the_estimate_of_all_reports_to_the_last_bit(tmp_path: Path) -> None:
    script = [sys.executable, str(EXAMPLES / "daily" / "daily.py"), str(tmp_path)]
    lines = subprocess.run(script, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [f"after {day} days" for day in range(1, 6)]
    assert lines[-1] == "from all 100,000 reports: the same, to the last bit"
    assert not list(tmp_path.glob("raw*"))
