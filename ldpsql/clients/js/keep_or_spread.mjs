// A word has size - 1 parts of width spread, which move the value on, then the part that keeps it.
structures.keep_or_spread = ({ size, spread }) => {
  const width = BigInt(spread);
  return (value, words) => {
    const moved = value + Math.min(Number(words() / width), size - 1) + 1;
    return moved < size ? moved : moved - size;
  };
};
