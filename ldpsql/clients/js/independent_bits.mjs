// All bits as those of other values, then the bit of the value.
structures.independent_bits = ({ size, own, other }) => {
  const width = Math.ceil(size / 64), kept = BigInt(own), drawn = coins(BigInt(other));
  return (value, words) => {
    const bits = drawn(width, words), at = value >> 6, bit = 1n << BigInt(value & 63);
    cut(bits, size);
    bits[at] = words() < kept ? bits[at] | bit : bits[at] & ~bit;
    return bits;
  };
};
