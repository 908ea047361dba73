structures.convolution = ({ inputs, margin, noise }) => {
  const drawn = alias(row(noise, 0)), last = inputs + 2 * margin - 1;
  return (value, words) => Math.min(Math.max(drawn(words()) + value - (inputs - 1), 0), last);
};
