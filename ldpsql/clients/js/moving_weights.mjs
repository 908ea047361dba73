// Two reports whose weights change evenly, then a window that moves evenly: each has `low`, and more where it is covered.
structures.moving_weights = ({ values, ...numbers }) => {
  const [share, first, bins, low, inside, step, start] =
    ["share", "first", "bins", "low", "inside", "step", "start"].map((name) => BigInt(numbers[name]));
  const last = BigInt(values - 1), way = bins * step - inside - 2n * start;
  const weights = (value) => {
    const left = first - ((2n * first - share) * value) / last, out = share ? [left, share - left] : [];
    const begin = start + (way * value) / last, end = begin + inside;
    for (let from = 0n; from < bins * step; from += step) {
      const covered = (end < from + step ? end : from + step) - (begin > from ? begin : from);
      out.push(low + (covered > 0n ? covered : 0n));
    }
    return out;
  };
  const made = [];
  return (value, words) => (made[value] ??= alias(weights(BigInt(value))))(words());
};
