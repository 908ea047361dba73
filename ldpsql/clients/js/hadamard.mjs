// A mask, flipped at the lowest bit of the value's number unless the value passes it as it should.
structures.hadamard = ({ size, inside }) => {
  const bits = 32 - Math.clz32(size), weight = BigInt(inside);
  const passes = (mask, number) => {
    let odd = mask & number;
    for (const by of [16, 8, 4, 2, 1]) odd ^= odd >>> by;
    return (odd & 1) === 0;
  };
  return (value, words) => {
    let mask = Number(words() >> BigInt(64 - bits));
    const number = value + 1;
    if (passes(mask, number) !== words() < weight) mask ^= number & -number;
    const set = Array(Math.ceil(size / 64)).fill(0n);
    for (let at = 0; at < size; at++) if (passes(mask, at + 1)) set[at >> 6] |= 1n << BigInt(at & 63);
    return set;
  };
};
