"""The pages in a real browser, Debian's chromium without a display: ``make test-browser``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image

import ldpsql
from ldpsql.pages import demo
from ldpsql.pages import page as pages
from ldpsql.registry.registry import registry

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")]


def screenshot(page: Path, height: int) -> NDArray[np.uint8]:
    """Let the browser draw a page without a network; return its pixels, shape (height, 900, 3)."""
    picture = page.with_suffix(".shot.png")
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND"),
        *(f"--user-data-dir={page.parent / 'empty'}", f"--window-size=900,{height}", "--hide-scrollbars"),
        *(f"--screenshot={picture}", page.as_uri()),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return np.asarray(Image.open(picture).convert("RGB"))


def drawn(picture: NDArray[np.uint8]) -> tuple[float, int]:
    """Return which share of the rows is not blank, and how many colours there are."""
    inked = (picture != picture[0, 0]).any(axis=(1, 2)).mean()
    return float(inked), len(np.unique(picture.reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1])))


def test_the_report_shows_all_its_pictures(tmp_path: Path) -> None:
    mechanism = registry().mechanism("planar_geometric(epsilon=1, columns=4, rows=3)")
    cells = pa.array(np.arange(20_000) % 7)
    found = {"All reports": ldpsql.estimate(ldpsql.perturb(cells, mechanism), mechanism)}
    truth = {"All reports": np.bincount(cells.to_numpy(), minlength=12) / len(cells)}
    page = tmp_path / "report.html"
    pages.write(page, found, truth, "SELECT 1")
    picture = screenshot(page, 2200)
    inked, colours = drawn(picture)
    assert inked > 0.5
    assert colours > 200  # bars, diamonds, two scales of colours, text
    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html><title>blank</title>")
    assert drawn(screenshot(blank, 2200)) == (0.0, 1)


def test_the_demonstration_shows_a_picture_for_each_airport(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    assert demo.write_page(demo.run("1"), page)
    inked, colours = drawn(screenshot(page, 2200))
    assert inked > 0.5
    assert colours > 50
