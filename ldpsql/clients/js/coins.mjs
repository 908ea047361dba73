// Words whose bits are set with a weight out of 2^64: its digits, from the last nonzero one on, OR or AND random words.
const coins = (weight) => {
  const digits = [];
  for (let place = 0n; place < 64n; place++) {
    const digit = (weight >> place) & 1n;
    if (digit || digits.length) digits.push(digit);
  }
  return (width, words) => {
    const bits = Array(width).fill(0n);
    for (const digit of digits)
      for (let i = 0; i < width; i++) bits[i] = digit ? bits[i] | words() : bits[i] & words();
    return bits;
  };
};
const cut = (bits, size) => (size % 64 ? (bits[bits.length - 1] &= (1n << BigInt(size % 64)) - 1n) : 0);
