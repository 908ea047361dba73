domains.steps = ({ low, high, step, each, last, clip }) => (value) => {
  const steps = (clipped(number(value), low, high, clip) - low) / step, whole = Math.round(steps);
  return whole >= 0 && whole <= last && Math.abs(steps - whole) <= 1e-6 ? Math.floor(whole / each) : undefined;
};
