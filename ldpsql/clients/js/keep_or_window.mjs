// Any symbol, or the key of the symbol and a bin near its own.
structures.keep_or_window = ({ keys, anything, window }) => {
  const near = structures[window.structure](window), bins = Number(window.values ?? window.rows.length), weight = BigInt(anything);
  return (symbol, words) => {
    const drawn = Number(words() / weight), first = Math.floor(symbol / bins) * bins, bin = near(symbol - first, words);
    return drawn < keys * bins ? drawn : first + bin;
  };
};
