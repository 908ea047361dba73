structures.repeated_hash = ({ response, again }) => {
  const first = structures.keep_or_spread(response), second = structures.keep_or_spread(again);
  return (value, words) => {
    const seed = words();
    return [seed, second(first(hashed(seed, value, response.size), words), words)];
  };
};
