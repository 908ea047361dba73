// An offset of columns and rows, or hardly ever a cell whatever the value is.
structures.planar_noise = ({ columns, rows, across, down, entries }) => {
  const drawn = alias(row(entries, 0)), width = 2 * across + 1, offsets = width * (2 * down + 1);
  const clip = (at, size) => Math.min(Math.max(at, 0), size - 1);
  return (value, words) => {
    const entry = drawn(words());
    if (entry >= offsets) return entry - offsets;
    const column = (value % columns) + (entry % width) - across;
    const line = Math.floor(value / columns) + Math.floor(entry / width) - down;
    return clip(line, rows) * columns + clip(column, columns);
  };
};
