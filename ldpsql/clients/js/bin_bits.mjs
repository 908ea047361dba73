// Each key shows the bins near a number, or nothing; a number near the symbol's bin may replace that of its key.
structures.bin_bits = ({ keys, bins, width, spread, near }) => {
  const places = bins + width - 1, each = BigInt(spread), own = BigInt(near);
  return (symbol, words) => {
    const shown = Array.from({ length: keys }, () => Math.min(Number(words() / each), places)), moved = Number(words() / own);
    if (moved < width) shown[Math.floor(symbol / bins)] = (symbol % bins) + moved;
    const set = Array(Math.ceil((keys * bins) / 64)).fill(0n);
    shown.forEach((number, key) => {
      for (let bin = Math.max(0, number - width + 1); number < places && bin <= Math.min(number, bins - 1); bin++) {
        const at = key * bins + bin;
        set[at >> 6] |= 1n << BigInt(at & 63);
      }
    });
    return set;
  };
};
