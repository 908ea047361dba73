// Whether the value is in the set, then the others with the smallest of random keys; ties are drawn again.
structures.subsets = ({ size, chosen, inside }) => {
  const weight = BigInt(inside);
  const others = (count, words) => {
    for (;;) {
      const keys = BigUint64Array.from({ length: size - 1 }, words);
      const last = keys.slice().sort()[Math.max(count - 1, 0)];
      const held = Array.from(keys, (key) => count > 0 && key <= last);
      if (held.filter(Boolean).length === count) return held;
    }
  };
  return (value, words) => {
    const held = words() < weight, bits = Array(Math.ceil(size / 64)).fill(0n);
    const set = (at) => (bits[at >> 6] |= 1n << BigInt(at & 63));
    others(chosen - Number(held), words).forEach((one, at) => one && set(at + (at >= value)));
    if (held) set(value);
    return bits;
  };
};
