"""A table of numbers as one PNG image: hundreds of thousands of cells take a few kilobytes."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats

COLOURS = ("#f3f6fa", "#dde8f4", "#c3d8ec", "#a3c4e2", "#7fadd6", "#5b94c6", "#3d7ab2", "#27629b", "#164a80", "#082f5c")
_SIGNATURE, _SHADES = b"\x89PNG\r\n\x1a\n", 256
_INDEXED = 3  # a colour type of PNG: each pixel is a number of the palette
_PIXELS = 1200  # along the longer side, about: viewers then have no small cells to blur


def image_address(table: Floats, top: float) -> str:
    """Return a table of numbers of at least 0 as a ``data:`` address; ``top`` has the darkest colour."""
    shades = np.clip(np.rint((_SHADES - 1) * table / (top or 1.0)), 0, _SHADES - 1).astype(np.uint8)
    times = max(1, _PIXELS // max(table.shape))
    pixels = shades.repeat(times, axis=0).repeat(times, axis=1)
    return f"data:image/png;base64,{b64encode(_png(pixels)).decode()}"


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the image whose pixels are numbers of the palette."""
    rows, columns = pixels.shape
    lines = np.pad(pixels, ((0, 0), (1, 0))).tobytes()  # each line begins with the number of its filter, 0 for none
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", columns, rows, 8, _INDEXED, 0, 0, 0),
        b"PLTE": _palette().tobytes(),
        b"IDAT": zlib.compress(lines, 9),
        b"IEND": b"",
    }
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts.items())


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _palette() -> NDArray[np.uint8]:
    """Return red, green and blue of each shade, with even steps between two colours."""
    ends = np.array([list(bytes.fromhex(colour[1:])) for colour in COLOURS])
    at = np.linspace(0, len(ends) - 1, _SHADES)
    return np.stack([np.interp(at, np.arange(len(ends)), part) for part in ends.T], axis=1).round().astype(np.uint8)
