// The digits of the weight, from the last nonzero one on, OR or AND random words into 64 coins at a time.
structures.independent_bits = ({ size, own, other }) => {
  const width = Math.ceil(size / 64), kept = BigInt(own), weight = BigInt(other), digits = [];
  for (let place = 0n; place < 64n; place++) {
    const digit = (weight >> place) & 1n;
    if (digit || digits.length) digits.push(digit);
  }
  return (value, words) => {
    const bits = Array(width).fill(0n);
    for (const digit of digits)
      for (let i = 0; i < width; i++) bits[i] = digit ? bits[i] | words() : bits[i] & words();
    if (size % 64) bits[width - 1] &= (1n << BigInt(size % 64)) - 1n;
    const at = value >> 6, bit = 1n << BigInt(value & 63);
    bits[at] = words() < kept ? bits[at] | bit : bits[at] & ~bit;
    return bits;
  };
};
