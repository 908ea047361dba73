domains.bins = ({ low, high, width, count, clip }) => (value) => {
  const inside = clipped(number(value), low, high, clip);
  return inside >= low && inside <= high ? Math.trunc(Math.min((inside - low) / width, count - 1)) : undefined;
};
