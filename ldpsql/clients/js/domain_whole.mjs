domains.whole = ({ first, count, clip }) => (value) => {
  const at = clipped(number(value), first, first + count - 1, clip) - first;
  return Number.isInteger(at) && at >= 0 && at < count ? at : undefined;
};
