structures.convolution = ({ inputs, margin, noise }) => {
  const drawn = alias(noise.order === undefined ? row(noise, 0) : mirrored(noise)), last = inputs + 2 * margin - 1;
  return (value, words) => Math.min(Math.max(drawn(words()) + value - (inputs - 1), 0), last);
};

// Each weight is foretold by those before it, whose ratios hardly change; what it differs by is added.
function mirrored({ order, differences, last }) {
  const half = [];
  differences.split(" ").forEach((difference, at) => {
    let over = BigInt(at && order ? 1 : 0), under = 1n;
    [[], [1], [2, 1], [3, 3, 1]][Math.min(order, at)].forEach((times, i) => {
      const power = half[at - 1 - i] ** BigInt(times);
      if (i % 2) under *= power;
      else over *= power;
    });
    half.push(BigInt(difference) + over / under);
  });
  return [BigInt(last), ...half.slice(1, -1).reverse(), ...half];
}
