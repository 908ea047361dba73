// Two bits for each key: + below -. All keys as those of other symbols, then the key of the symbol.
structures.signed_bits = ({ keys, same, opposite, spread }) => {
  const width = Math.ceil(keys / 32), own = BigInt(same), either = own + BigInt(opposite), drawn = coins(2n * BigInt(spread));
  return (symbol, words) => {
    const signed = drawn(width, words).map((word) => word & 0x5555555555555555n);
    const bits = signed.map((word) => {
      const plus = word & words();
      return plus | ((word ^ plus) << 1n);
    });
    cut(bits, 2 * keys);
    const word = words(), at = symbol >> 6, bit = 1n << BigInt(symbol & 63), other = 1n << BigInt((symbol & 63) ^ 1);
    bits[at] = (bits[at] & ~(bit | other)) | (word < own ? bit : word < either ? other : 0n);
    return bits;
  };
};
