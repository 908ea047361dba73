// Weights by squared distance that fall exponentially, as ldpsql/channels/planar_decay.py defines them: whole numbers only.
function falling(step, peak) {
  const powers = Array.from({ length: 5 }, (_, place) => {
    let base = 1n << 128n, term = base, power = base;
    for (let k = 1n; k < 40n; k++) base += term = floored(-(term >> BigInt(44 - 10 * place)), k);
    return Array.from({ length: 1024 }, () => {
      const now = power >> 64n;
      power = (power * base) >> 128n;
      return now >> 64n ? now - 1n : now;
    });
  });
  const weights = [], most = (1n << 50n) - 1n;
  for (let n = 0n; ; n++) {
    let root = BigInt(Math.floor(Math.sqrt(Number(n)) * 2 ** 40)); // corrected below
    while (root * root > n << 80n) root--;
    while ((root + 1n) * (root + 1n) <= n << 80n) root++;
    let exponent = (step * root) >> 40n, weight = peak;
    if (exponent > most) exponent = most;
    powers.forEach((power, place) => (weight = (weight * power[Number((exponent >> BigInt(10 * place)) & 1023n)]) >> 64n));
    if (weights.length && weight > weights.at(-1)) weight = weights.at(-1);
    if (weight === 0n && weights.length) return weights;
    weights.push(weight);
  }
}
const floored = (a, b) => (a < 0n ? (a - b + 1n) / b : a / b);

// The weights of the offsets of columns and rows, then of the cells whatever the value is; and where an entry moves a value.
function plane(numbers) {
  const [columns, rows, points] = ["columns", "rows", "points"].map((name) => Number(numbers[name]));
  const weights = falling(BigInt(numbers.step), BigInt(numbers.peak)), half = (points - 1) / 2;
  let last = 0;
  while (((last + 1) * points - half) ** 2 < weights.length) last++;
  const across = Math.min(columns - 1, last), down = Math.min(rows - 1, last), width = 2 * across + 1;
  const quarter = Array.from({ length: down + 1 }, () => Array(across + 1).fill(0n));
  for (let i = 0; i <= last; i++)
    for (let j = 0; j <= last; j++) {
      let sum = 0n;
      for (let x = i * points - half; x <= i * points + half; x++)
        for (let y = j * points - half; y <= j * points + half; y++) sum += weights[x * x + y * y] ?? 0n;
      quarter[Math.min(j, down)][Math.min(i, across)] += sum;
    }
  const entries = [], offsets = width * (2 * down + 1), cells = columns * rows;
  for (let at = 0; at < offsets; at++)
    entries.push(quarter[Math.abs(Math.floor(at / width) - down)][Math.abs((at % width) - across)]);
  const ends = (at, size) => (at === 0 || at === size - 1 ? 1 + last : 1), each = BigInt(numbers.spread) * BigInt(points ** 2);
  for (let at = 0; at < cells; at++)
    entries.push(each * BigInt(ends(at % columns, columns) * ends(Math.floor(at / columns), rows)));
  const left = (1n << 64n) - entries.reduce((sum, weight) => sum + weight, 0n), count = BigInt(cells);
  for (let at = 0; at < cells; at++) entries[offsets + at] += left / count + (BigInt(at) < left % count ? 1n : 0n);
  const clip = (at, size) => Math.min(Math.max(at, 0), size - 1);
  const moved = (value, entry) =>
    entry >= offsets ? entry - offsets
    : clip(Math.floor(value / columns) + Math.floor(entry / width) - down, rows) * columns
      + clip((value % columns) + (entry % width) - across, columns);
  return { entries, moved, cells };
}
